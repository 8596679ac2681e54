package memory

import (
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// What [CleanExternal] finds.
const (
	FoundInstruction = "instruction"
	FoundLink        = "link"
	FoundPayment     = "payment_target"
	FoundSecret      = "secret"
)

var (
	instructionText = regexp.MustCompile(`(?i)(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|every|the|your|my|these|those)\s+)*(?:of\s+)?(?:(?:the|your)\s+)?(?:previous|prior|above|earlier|preceding|existing|system|safety|original)\b[^.\n]{0,40}\b(?:instructions?|prompts?|rules?|messages?|guidelines?|context|polic(?:y|ies)|directions?)|(?:you\s+(?:are|must)\s+now|from\s+now\s+on,?\s+you|new\s+instructions?\s*[:：]|system\s+prompt|developer\s+mode|jailbreak|do\s+anything\s+now|as\s+an?\s+ai\b[^.\n]{0,40}\b(?:must|should|will))|</?(?:system|instructions?|assistant|tool_response|im_start|im_end)>|<\|[a-z_]+\|>|\[(?:INST|SYSTEM)\]|(?:^|\n)\s*(?:system|assistant)\s*:|(?:AI|LLM|agents?|assistants?)\s*[:,]?\s+(?:please\s+)?(?:must|should|shall|always|now)\s+(?:send|transfer|forward|delete|call|run|execute|reveal|email|upload|post|pay|wire|ignore)|do\s+not\s+(?:tell|inform|mention\s+(?:this|it)\s+to|alert)\s+(?:the\s+)?(?:user|human|owner|operator)|(?:reveal|print|output|repeat|exfiltrate|leak)\s+(?:your|the)\s+(?:system\s+prompt|instructions|credentials|secrets?|api\s+keys?)`)
	instructionZH   = regexp.MustCompile(`(?:忽略|无视|忘记|忘掉|不要理会|覆盖|绕过)(?:掉)?(?:你)?(?:之前|以前|先前|上面|以上|前面|此前|所有|全部|系统|原有|原来)[^。\n]{0,12}(?:指令|指示|提示|规则|要求|命令|设定|内容|限制)|(?:从现在开始|现在起)[，,]?你(?:是|必须|要|将)|系统提示词?|新的?指令[:：]|(?:不要|别)(?:告诉|通知|告知)(?:用户|任何人)|(?:智能体|助手|代理|AI)(?:必须|应当|请|需要)(?:立即|马上)?(?:转账|发送|删除|执行|上传|支付|泄露)`)
	linkText        = regexp.MustCompile(`(?i)\b(?:https?|ftp|wss?|file|javascript|data|mailto|ssh|git)://[^\s<>"'，。）)]+|\b(?:javascript|mailto|data:text)[:][^\s<>"']+|\bwww\.[\w-]+\.[^\s<>"'，。）)]+|\]\([^)\s]+\)|\b(?:[a-z0-9-]+\.)+(?:com|net|org|io|ru|cn|info|biz|xyz|top|site|online|club|dev|app|co)/[^\s<>"'，。）)]+`)
	ibanText        = regexp.MustCompile(`\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b`)
	cardText        = regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`)
	walletText      = regexp.MustCompile(`\b(?:0x[0-9a-fA-F]{40}|bc1[02-9ac-hj-np-z]{11,71}|[13][1-9A-HJ-NP-Za-km-z]{25,34}|T[1-9A-HJ-NP-Za-km-z]{33})\b`)
	maskedSecret    = regexp.MustCompile(`(?i)\[(?:masked|redacted)[^\]]*\]`)

	// unsafeAdvice is a way to look successful without being so, or to run what others serve.
	unsafeAdvice = regexp.MustCompile(`(?i)\b(?:curl|wget)\b[^\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?(?:sh|python\d?|perl|node)\b|\b(?:skip(?:s|ping|ped)?|bypass(?:es|ing|ed)?|disabl(?:e|es|ing)|circumvent(?:s|ing)?|evad(?:e|ing)|avoid(?:s|ing)?|without|suppress(?:es|ing)?)\s+(?:\w+\s+){0,3}(?:\w*validat\w*|(?:\w+ )?checks?|review(?:s|ing)?|gates?|verif\w+|approvals?|consent|audit\w*|authenti\w+|safety|guardrails?)\b|\bmark(?:s|ed|ing)?\s+[^.\n]{0,60}\bas\s+(?:passed|pass|success\w*|complete[d]?|final|clean|sanitized|approved|done|verified|validated)\b|\bflags?\s+[^.\n]{0,40}\bas\s+(?:clean|passed|approved)\b|\b(?:skip|bypass|force|no)_[a-z_]+\s*=\s*(?:1|true|yes)\b|\b[a-z_]+_force_[a-z]+\s*=|\balways\s+(?:pass|succeed|return true)\b|\bregardless of (?:the )?(?:checks?|validation|results?)\b|--(?:no-verify|skip-[a-z-]+|force-yes|auto-approve)\b|(?:跳过|绕过|关闭|禁用|规避)[^。\n]{0,10}(?:验证|校验|检查|审核|审批|审计|认证|安全)|标记为(?:通过|成功|完成|已审核)|\x60(?:skip|bypass|ignore|disable|override|no)_\w*(?:check|valid|verif|approv|auth|audit|saf|review|guard|test)\w*\x60(?: to| ?设为)? ?[(（]?\x60(?:true|1|yes)\x60`)

	reviewTopics = regexp.MustCompile(`(?i)\b(?:pay(?:ment|out|s|ing)?|refunds?|transfer(?:s|red)?|wire|invoice|bank|iban|credit card|gift card|wallet|price|charge[sd]?|billing|money|funds?|salary|password|passwd|secret|credential|token|api[ _-]?key|permission|access control|sudo|root access|auth(?:entication|orization)?|login|firewall|certificate|encrypt\w*|security|mfa|2fa|delete[sd]?|deletion|drop table|truncate|remove all|erase|wipe|purge|destroy|rm -rf|unsubscribe|terminate)\b|支付|付款|退款|转账|汇款|发票|银行|账单|金额|扣款|工资|密码|口令|密钥|令牌|凭证|权限|认证|授权|登录|防火墙|加密|安全|删除|清空|清除|销毁|抹除|注销`)
)

// CleanExternal takes out of a text of foreign origin (a tool's output, a web page, a file) what must never enter an
// item: sentences that instruct the agent, links, payment targets and secrets. It names what it found, each kind once.
func CleanExternal(text string) (clean string, found []string) {
	note := func(kind string) {
		if !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	if InstructsAgent(text) {
		note(FoundInstruction)
		var b strings.Builder
		for _, sentence := range sentences(text) {
			if !InstructsAgent(sentence) {
				b.WriteString(sentence)
			}
		}
		text = b.String()
		if InstructsAgent(text) {
			text = "" // It runs over the ends of sentences.
		}
	}
	replace := func(pattern *regexp.Regexp, kind, with string, valid func(string) bool) {
		text = pattern.ReplaceAllStringFunc(text, func(m string) string {
			if valid != nil && !valid(m) {
				return m
			}
			note(kind)
			return with
		})
	}
	replace(linkText, FoundLink, "<link>", nil)
	replace(ibanText, FoundPayment, "<account>", validIBAN)
	replace(walletText, FoundPayment, "<account>", nil)
	replace(cardText, FoundPayment, "<account>", validCard)
	if masked := events.MaskText(text); masked != text {
		text = masked
		note(FoundSecret)
	}
	text = maskedSecret.ReplaceAllString(text, "<secret>")
	return strings.TrimSpace(text), found
}

// InstructsAgent reports a text that tries to give the agent orders, in English or Chinese.
func InstructsAgent(text string) bool {
	return instructionText.MatchString(text) || instructionZH.MatchString(text)
}

// TouchesCritical reports a text about money, security or deletion.
func TouchesCritical(text string) bool { return reviewTopics.MatchString(text) }

// TrustGate decides what may be shown of an item. What rests on foreign text alone and instructs the agent is
// quarantined; what rests on foreign text alone and is about money, security or deletion waits for a person, and so does
// what no user said and advises to skip a check, to claim a success or to run foreign code.
func TrustGate(trust Trust, texts ...string) (status ItemStatus, reason string) {
	all := strings.Join(texts, "\n")
	switch {
	case trust == TrustUserStated && !InstructsAgent(all):
		return ItemActive, ""
	case InstructsAgent(all):
		return ItemQuarantined, "it tries to give the agent instructions"
	case trust != TrustUserStated && unsafeAdvice.MatchString(all):
		return ItemPendingReview, "it advises to skip a check, to claim a success or to run foreign code"
	case trust == TrustExternal && TouchesCritical(all):
		return ItemPendingReview, "it rests on external text alone and is about money, security or deletion"
	default:
		return ItemActive, ""
	}
}

// validIBAN checks the checksum, so that an order number is not taken for an account.
func validIBAN(s string) bool {
	s = strings.ReplaceAll(s, " ", "")
	if len(s) < 15 || len(s) > 34 {
		return false
	}
	var digits strings.Builder
	for _, r := range s[4:] + s[:4] {
		switch {
		case '0' <= r && r <= '9':
			digits.WriteRune(r)
		case 'A' <= r && r <= 'Z':
			digits.WriteString(big.NewInt(int64(r - 'A' + 10)).String())
		default:
			return false
		}
	}
	n, ok := new(big.Int).SetString(digits.String(), 10)
	return ok && new(big.Int).Mod(n, big.NewInt(97)).Int64() == 1
}

// validCard checks the Luhn sum.
func validCard(s string) bool {
	sum, n := 0, 0
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		d := int(s[i] - '0')
		if n%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
		n++
	}
	return n >= 13 && n <= 19 && sum%10 == 0
}

var sentenceEnd = regexp.MustCompile(`[.!?;]+(?:\s+|$)|[。！？；]+|\n+`)

// sentences splits a text after the ends of sentences; joined they are the text again.
func sentences(text string) []string {
	var out []string
	at := 0
	for _, end := range sentenceEnd.FindAllStringIndex(text, -1) {
		out = append(out, text[at:end[1]])
		at = end[1]
	}
	if at < len(text) {
		out = append(out, text[at:])
	}
	return out
}
