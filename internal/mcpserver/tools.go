package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Toolset names a set of tools.
type Toolset string

// Toolsets.
const (
	// ToolsetCore is what an agent needs.
	ToolsetCore Toolset = "core"
	// ToolsetFull adds tools to look closer.
	ToolsetFull Toolset = "full"
	// ToolsetCompat has the names that other guides use.
	ToolsetCompat Toolset = "compat"
)

// toolsets lists all of them.
func toolsets() []Toolset { return []Toolset{ToolsetCore, ToolsetFull, ToolsetCompat} }

// ParseToolset reads the name of a toolset; empty means core.
func ParseToolset(name string) (Toolset, error) {
	if name == "" {
		return ToolsetCore, nil
	}
	for _, t := range toolsets() {
		if name == string(t) {
			return t, nil
		}
	}
	return "", fmt.Errorf("toolset %q: it must be core, full or compat", name)
}

// tool is one tool: what a client sees of it, and the function behind it.
type tool struct {
	name, title, about string
	arguments          []argument
	// scope is what a caller needs.
	scope                   Scope
	destructive, idempotent bool
	// serve answers a call with a value that is encoded as the result.
	serve func(s *Server, ctx context.Context, c call) (any, error)
}

// call is one call of a tool, read and authenticated.
type call struct {
	arguments

	identity Identity
	// task, session, agent and user are who asks, from the arguments, else from the client's _meta.
	task, session, agent, user string
}

// tools lists the tools of a toolset.
func tools(set Toolset) []tool {
	switch set {
	case ToolsetFull:
		return append(coreTools(), fullTools()...)
	case ToolsetCompat:
		return compatTools()
	case ToolsetCore:
		return coreTools()
	default:
		return coreTools()
	}
}

func coreTools() []tool {
	return []tool{
		{
			name: "retrieve_similar", title: "Similar past decisions", scope: ScopeRead, idempotent: true, serve: (*Server).retrieveSimilar,
			about: "Use when you are about to decide or start a task: finds similar past decisions, how they ended and the lesson.",
			arguments: asked(
				argument{
					name: "current_context", kind: kindContext, required: true, fields: contextFields(),
					about: "What you are about to do, as text or JSON {task_type, input_summary, available_tools}",
				},
				topK(), minScore(), asOf()),
		},
		{
			name: "check_action", title: "Check a call before making it", scope: ScopeRead, idempotent: true, serve: (*Server).checkAction,
			about: "Use when you are about to call a tool that can fail or do harm: says what is known to go wrong with this call; empty if nothing.",
			arguments: asked(
				argument{name: "tool", about: "Tool to be called", required: true},
				argument{name: "parameters", kind: kindObject, about: "Its parameters"},
				argument{name: "task_type"}),
		},
		{
			name: "get_rules", title: "Rules of a task type", scope: ScopeRead, idempotent: true, serve: (*Server).getRules,
			about:     "Use when you start a task: rules learnt from many tasks of its type.",
			arguments: asked(argument{name: "task_type", about: "Default all"}, asOf()),
		},
		{
			name: "store_snapshot", title: "Store a decision", scope: ScopeWrite, idempotent: true, serve: (*Server).storeSnapshot,
			about: "Use when a step failed or taught you something: stores the decision and its outcome; the lesson is drawn later.",
			arguments: asked(
				argument{name: "task_context", kind: kindObject, required: true, about: "What was known", fields: contextFields()},
				argument{name: "decision", kind: kindObject, required: true, about: "What was chosen", fields: []argument{
					{name: "tool_selected", required: true, about: "the tool that was called"}, {name: "parameters", kind: kindObject}, {name: "reasoning_path"},
				}},
				argument{name: "outcome", kind: kindObject, required: true, about: "What came back", fields: []argument{
					{
						name: "status", required: true, about: "success or failure", oneOf: []string{"success", "failure"},
						also: map[string]string{"succeeded": "success", "ok": "success", "failed": "failure", "fail": "failure", "error": "failure"},
					},
					{name: "error_type"},
					{name: "error_message"},
					{name: "execution_time_ms", kind: kindNumber},
				}}),
		},
		{
			name: "memory_search", title: "Search memory", scope: ScopeRead, idempotent: true, serve: (*Server).memorySearch,
			about: "Use when you need a fact, preference, procedure or correction from earlier tasks.",
			arguments: asked(
				argument{name: "query", about: "Or entity"},
				argument{name: "entity", about: "Exact thing to know about"},
				searchType(), topK(), minScore(), asOf()),
		},
		{
			name: "memory_write", title: "Remember", scope: ScopeWrite, idempotent: true, serve: (*Server).memoryWrite,
			about: "Use when the user states or corrects something worth keeping. Give content, or key and value, or entity, value and operation.",
			arguments: joined(
				argument{name: "content", about: "One sentence"},
				argument{name: "key"}, argument{name: "entity"}, argument{name: "value"},
				argument{name: "operation", oneOf: []string{"add", "update", "delete"}, about: "Default add"},
				writeType(), importance(),
				argument{name: "entities", kind: kindTexts},
				argument{name: "timestamp", kind: kindTime, about: "True since, RFC 3339"}),
		},
		{
			name: "memory_forget", title: "Forget", scope: ScopeWrite, destructive: true, idempotent: true, serve: (*Server).memoryForget,
			about:     "Use when an item is wrong or the user wants it gone: hides it; can be undone.",
			arguments: joined(memoryID(), argument{name: "reason"}),
		},
		{
			name: "memory_feedback", title: "Judge an item", scope: ScopeWrite, serve: (*Server).memoryFeedback,
			about: "Use when an item you were shown helped or misled you.",
			arguments: joined(
				argument{name: "item_id", required: true, about: "id of an answer's item"},
				argument{name: "helpful", kind: kindYesNo, required: true, about: "true or false"},
				argument{name: "comment"}),
		},
	}
}

func fullTools() []tool {
	return []tool{
		updateTool("memory_update"),
		{
			name: "memory_history", title: "History of an entity", scope: ScopeRead, idempotent: true, serve: (*Server).memoryHistory,
			about: "Use when you need what was so before: all that memory held about an entity, superseded values included, the newest first.",
			arguments: asked(
				argument{name: "entity", required: true, about: "Exact name"}, asOf(),
				argument{name: "page", kind: kindWhole, about: "From 1; default 1"},
				argument{name: "page_size", kind: kindWhole, about: "Default 20, at most 50"}),
		},
		{
			name: "explain", title: "Explain an item", scope: ScopeRead, idempotent: true, serve: (*Server).explain,
			about:     "Use when you doubt an item: its evidence, why it is trusted, how it was used and what it is related to.",
			arguments: asked(argument{name: "item_id", required: true, about: "id of an answer's item"}),
		},
	}
}

func compatTools() []tool {
	return []tool{
		{
			name: "store_memory", title: "Remember", scope: ScopeWrite, idempotent: true, serve: (*Server).memoryWrite,
			about:     "Use when something is worth keeping for later tasks.",
			arguments: joined(argument{name: "content", required: true, about: "One sentence"}, writeType(), importance(), argument{name: "entities", kind: kindTexts}),
		},
		{
			name: "retrieve_memory", title: "Search memory", scope: ScopeRead, idempotent: true, serve: (*Server).memorySearch,
			about:     "Use when you need something from earlier tasks.",
			arguments: asked(argument{name: "query", required: true, about: "What to look for"}, topK(), minScore(), searchType()),
		},
		{
			name: "recall_memory", title: "Similar past decisions", scope: ScopeRead, idempotent: true, serve: (*Server).recallMemory,
			about:     "Use when you are about to decide: finds similar past decisions and their lessons.",
			arguments: asked(argument{name: "query", required: true, about: "What you are about to do"}, topK()),
		},
		updateTool("update_memory"),
		{
			name: "forget_memory", title: "Forget", scope: ScopeWrite, destructive: true, idempotent: true, serve: (*Server).memoryForget,
			about:     "Use when a memory is wrong or unwanted: hides it; can be undone.",
			arguments: joined(memoryID()),
		},
	}
}

func updateTool(name string) tool {
	return tool{
		name: name, title: "Change a memory", scope: ScopeWrite, idempotent: true, serve: (*Server).memoryUpdate,
		about: "Use when a memory is out of date: gives it new content, value, importance or tags; earlier versions are kept.",
		arguments: joined(
			memoryID(), argument{name: "content"}, argument{name: "value"}, importance(),
			argument{name: "tags", kind: kindTexts}, argument{name: "reason"}),
	}
}

// asked adds to a tool's arguments what joins the call to a task.
func asked(own ...argument) []argument {
	return append(own, argument{name: "task_id"}, argument{name: "session_id"})
}

// joined adds the same without listing it.
func joined(own ...argument) []argument {
	return append(own, argument{name: "task_id", quiet: true}, argument{name: "session_id", quiet: true})
}

func contextFields() []argument {
	return []argument{{name: "task_type"}, {name: "input_summary"}, {name: "available_tools", kind: kindTexts}}
}

func topK() argument { return argument{name: "top_k", kind: kindWhole, about: "Default 5"} }

func minScore() argument {
	return argument{name: "min_score", kind: kindNumber, about: "0-1, default 0.5"}
}

func asOf() argument { return argument{name: "as_of", kind: kindTime, about: "Past time, RFC 3339"} }

func memoryID() argument { return argument{name: "memory_id", required: true, about: "id of the item"} }

func importance() argument { return argument{name: "importance", kind: kindNumber, about: "0-1"} }

const (
	typeAll        = "all"
	typeExperience = "experience"
)

func searchType() argument {
	return argument{
		name: "memory_type", oneOf: []string{typeAll, "fact", typeExperience, "preference", "procedure", "correction"}, also: typeWords(), about: "Default all",
	}
}

func writeType() argument {
	return argument{
		name: "memory_type", oneOf: []string{"fact", "preference", "procedure", "correction"}, about: "Default fact",
		// An experience told in words is how something is done; with its decision and outcome it is a snapshot.
		also: map[string]string{"semantic": "fact", "procedural": "procedure", "episodic": "procedure", typeExperience: "procedure", typeAll: "fact"},
	}
}

// typeWords are what other memories call the types.
func typeWords() map[string]string {
	return map[string]string{"semantic": "fact", "procedural": "procedure", "episodic": typeExperience, "any": typeAll}
}

// definition is what a client is told of a tool.
func (t tool) definition() *mcp.Tool {
	no := false
	destructive := t.destructive
	return &mcp.Tool{
		Name: t.name, Description: t.about, InputSchema: schemaOf(t.arguments),
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: t.scope == ScopeRead, DestructiveHint: &destructive, IdempotentHint: t.idempotent, OpenWorldHint: &no,
			Title: t.title,
		},
	}
}

// schemaOf describes arguments in the little of JSON Schema that every client and provider reads: one type a value, no
// alternatives, no references, nothing closed. The order is that of the declaration.
func schemaOf(declared []argument) json.RawMessage {
	var b bytes.Buffer
	var required []string
	b.WriteString(`{"type":"object","properties":{`)
	first := true
	for _, d := range declared {
		if d.quiet {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		fmt.Fprintf(&b, "%s:{", quoted(d.name))
		b.WriteString(typeOf(d))
		if d.about != "" && (len(d.fields) == 0 || d.kind == kindContext) {
			fmt.Fprintf(&b, `,"description":%s`, quoted(d.about))
		}
		b.WriteByte('}')
		if d.required {
			required = append(required, d.name)
		}
	}
	b.WriteByte('}')
	if len(required) > 0 {
		fmt.Fprintf(&b, `,"required":%s`, quoted(required))
	}
	b.WriteByte('}')
	return b.Bytes()
}

func typeOf(d argument) string {
	switch d.kind {
	case kindText, kindContext, kindTime:
		if len(d.oneOf) > 0 {
			return `"type":"string","enum":` + quoted(d.oneOf)
		}
		return `"type":"string"`
	case kindWhole:
		return `"type":"integer"`
	case kindNumber:
		return `"type":"number"`
	case kindYesNo:
		return `"type":"boolean"`
	case kindTexts:
		return `"type":"array","items":{"type":"string"}`
	case kindObject:
		inner := schemaOf(d.fields)
		return string(inner[1 : len(inner)-1])
	default:
		return `"type":"string"`
	}
}

// quoted is a JSON text of names that hold nothing special, which cannot fail.
func quoted(v any) string {
	raw, err := encode(v)
	if err != nil {
		return `""`
	}
	return string(raw)
}
