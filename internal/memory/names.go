package memory

import (
	"encoding/json"
	"slices"
	"strings"
)

// readVerbs begin the names of tools that change nothing.
var readVerbs = map[string]bool{
	"get": true, "list": true, "find": true, "search": true, "read": true, "query": true, "lookup": true, "look": true, "calculate": true,
	"calc": true, "think": true, "check": true, "show": true, "view": true, "fetch": true, "retrieve": true, "describe": true, "count": true,
	"inspect": true, "verify": true, "validate": true, "explain": true, "is": true, "has": true, "can": true, "grep": true, "glob": true,
	"ls": true, "cat": true, "browse": true, "browser": true, "summarize": true, "analyze": true, "analyse": true, "compare": true,
	"compute": true, "select": true, "status": true, "ping": true, "test": true, "preview": true, "estimate": true, "recall": true,
	"websearch": true, "webfetch": true, "ask": true, "plan": true, "todowrite": true, "todoread": true,
}

// readSigns are Chinese words in the names of tools that change nothing.
var readSigns = []string{"查询", "获取", "读取", "搜索", "查找", "检索", "列出", "查看", "计算", "思考", "统计", "检查", "分析", "询问", "浏览", "验证"}

// readPrograms are commands that change nothing.
var readPrograms = map[string]bool{
	"ls": true, "cat": true, "grep": true, "rg": true, "find": true, "head": true, "tail": true, "less": true, "pwd": true, "which": true,
	"echo": true, "wc": true, "stat": true, "file": true, "tree": true, "ps": true, "df": true, "du": true, "env": true, "diff": true,
}

// IsRead tells from the name of a tool whether a call only reads; for a shell the command says it, where one is given.
// What is not known to be reading counts as changing something.
func IsRead(tool, command string) bool {
	if command != "" {
		words := strings.Fields(command)
		if len(words) > 0 && !strings.ContainsAny(command, ">|;&") {
			if readPrograms[words[0]] {
				return true
			}
			if words[0] == "git" && len(words) > 1 && slices.Contains([]string{"status", "log", "diff", "show", "branch"}, words[1]) {
				return true
			}
		}
	}
	for _, sign := range readSigns {
		if strings.Contains(tool, sign) {
			return true
		}
	}
	words := nameWords(tool)
	if len(words) > 1 && (words[0] == "mcp" || words[0] == "functions") {
		words = words[1:]
	}
	for i, w := range words {
		if readVerbs[w] && (i == 0 || len(words) > i+1 || i == len(words)-1 && i <= 1) {
			// crm.get_user reads, and so does customer_search; set_status and run_test do not count as reading.
			return i == 0 || w != "status" && w != "test" && w != "count" && w != "check" && !changeVerb(words[0])
		}
		if changeVerb(w) {
			return false
		}
	}
	return false
}

// establishes reports a tool that proves something although it reads: what was verified counts as verified from then on.
func establishes(tool string) bool {
	words := nameWords(tool)
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"verify", "validate", "authenticate", "authorize", "confirm", "approve"}, w)
	}) || strings.Contains(tool, "验证") || strings.Contains(tool, "校验")
}

func changeVerb(w string) bool {
	switch w {
	case "set", "run", "update", "create", "delete", "remove", "add", "modify", "write", "send", "make", "book", "cancel", "insert",
		"exec", "execute", "edit", "put", "post", "patch", "toggle", "enable", "disable", "reset", "move", "copy", "rename", "apply",
		"submit", "pay", "refund", "transfer", "exchange", "return", "start", "stop", "restart", "deploy", "grant", "revoke", "merge", "push":
		return true
	default:
		return false
	}
}

// isThought reports tools that only let the agent think or reckon: they explain nothing.
func isThought(tool string) bool {
	words := nameWords(tool)
	return len(words) > 0 && slices.Contains([]string{"think", "calculate", "calc", "reason", "plan", "note", "思考"}, words[0])
}

// isHandOver reports tools that give the task to a person.
func isHandOver(tool string) bool {
	words := nameWords(tool)
	return slices.Contains(words, "human") || slices.Contains(words, "humans") || slices.Contains(words, "escalate") || strings.Contains(tool, "转人工")
}

// commandOf is the command of a call of a shell, or nothing.
func commandOf(s Step) string {
	var p struct {
		Command string `json:"command"`
		Cmd     string `json:"cmd"`
	}
	if json.Unmarshal(s.Parameters, &p) != nil {
		return ""
	}
	if p.Command != "" {
		return p.Command
	}
	return p.Cmd
}
