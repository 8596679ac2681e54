package memory

import (
	"regexp"
	"strings"
)

// maxSignatureBytes is where a signature is cut, as the record's column is.
const maxSignatureBytes = 300

var (
	signatureQuoted  = regexp.MustCompile("(^|[\\s(=:,])('[^']*'|\"[^\"]*\"|`[^`]*`)")
	signatureAddress = regexp.MustCompile(`[^\s,;:()<>]*@[^\s,;:()<>]+`)
	signatureValue   = regexp.MustCompile(`[#\w.:/-]*[0-9][#\w.:/-]*`)
)

// ErrorSignature gives an error message without its values, so that like errors group: quoted texts become <text>,
// addresses <address>, and all words with a digit <value>; ASCII letters are lower case, and it is cut at 300 bytes.
//
// It agrees byte for byte with the column error_signature of the record, which groups the same errors in SQL.
func ErrorSignature(message string) string {
	s := lowerASCII(message)
	s = signatureQuoted.ReplaceAllString(s, "${1}<text>")
	s = signatureAddress.ReplaceAllString(s, "<address>")
	s = signatureValue.ReplaceAllString(s, "<value>")
	s = strings.Trim(s, " ")
	if len(s) > maxSignatureBytes {
		s = s[:maxSignatureBytes]
	}
	return s
}

// lowerASCII leaves all letters beyond ASCII alone, as ClickHouse's lower does.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

var (
	// faultStatus is a status code that is said to be one, or stands at the very beginning: "paid 503" is an amount.
	faultStatus = regexp.MustCompile(`(?i)(?:^\W*(?:error|fault|failure|exception)?\W*|\b(?:http(?:/\d(?:\.\d)?)?|status(?:[ _]code)?|code)[ :=]+(?:error )?)(?:429|5\d\d)\b(?:\W|$)`)
	// firstStatus is a code at the beginning and what follows it: an amount may begin a message too.
	faultPhrase  = regexp.MustCompile(`(?i)\b(?:service (?:is )?(?:temporarily )?unavailable|temporarily (?:unavailable|down|out of service|overloaded)|internal server error|bad gateway|gateway time-?out|too many requests|rate[ -]?limit(?:ed|s)?|server (?:is )?(?:busy|overloaded|down)|overloaded_error|(?:model|system|backend) (?:is )?overloaded|quota exceeded|try again later|connection (?:was )?(?:refused|reset|aborted|closed|lost|error)|connection (?:could not|cannot) be established|could not connect|failed to connect|unable to connect|network (?:is )?(?:unreachable|error|failure)|no route to host|name resolution|dns (?:lookup )?(?:failed|failure|error)|broken pipe|socket hang up|tls handshake|econnrefused|econnreset|enotfound|eai_again|upstream connect error)\b`)
	faultChinese = regexp.MustCompile(`服务(?:器)?(?:暂时|暂|目前)?(?:不可用|繁忙|异常|内部错误|过载)|暂时(?:不可用|无法访问|无法使用)|系统(?:繁忙|过载|维护)|网络(?:错误|异常|不可达|故障|中断)|连接(?:被拒绝|被重置|失败|中断|错误)|无法连接|请求(?:过于|太)?频繁|限流|请稍后(?:再试|重试)|稍后再试|网关错误|域名解析失败`)
	timeoutText  = regexp.MustCompile(`(?i)\b(?:timed[ -]?out|time[ -]?out|deadline exceeded|etimedout|timeouterror|timeoutexception)\b|超时`)
	// timeoutArgument is about a parameter of that name and not about time that ran out.
	timeoutArgument = regexp.MustCompile(`(?i)\b(?:invalid|unknown|unexpected|missing|negative|bad)\b[^.]{0,40}\btime[ -]?out\b|\btime[ -]?out\b[^.]{0,20}\b(?:must|should|cannot|is not|is invalid|needs to)\b|超时(?:时间)?(?:参数|必须|无效)`)
	faultType       = regexp.MustCompile(`(?i)^(?:429|5\d\d)$|^(?:requests\.exceptions\.)?(?:connection(?:refused|reset|aborted)?error|ratelimiterror|serviceunavailable(?:error)?|internalservererror|apiconnectionerror|unavailable|resource_exhausted|network_?error|rate_limit(?:ed)?|service_unavailable)$`)
	timeoutType     = regexp.MustCompile(`(?i)^(?:\w+\.)*(?:\w*time_?out(?:error|exception)?|deadline_exceeded)$`)
)

// Fault says what kind of fault of the environment an error is.
type Fault string

// Faults of the environment.
const (
	// FaultNone is an error that the call brought about.
	FaultNone Fault = ""
	// FaultOutage is a service that is away or overloaded: nothing about the task.
	FaultOutage Fault = "outage"
	// FaultTimeout is time that ran out. It is the environment's, unless asking for less made the call work.
	FaultTimeout Fault = "timeout"
)

// EnvironmentFault tells whether an error is the environment's: status codes 5xx and 429, time that ran out, connections
// that failed, in English and Chinese. An outage says nothing about the task, and is never a lesson about it.
func EnvironmentFault(errorType, message string) Fault {
	if faultType.MatchString(errorType) || faultPhrase.MatchString(message) || faultChinese.MatchString(message) || saysStatus(message) {
		return FaultOutage
	}
	if timeoutType.MatchString(errorType) || timeoutText.MatchString(message) && !timeoutArgument.MatchString(message) {
		return FaultTimeout
	}
	return FaultNone
}

// saysStatus reports a status code of an outage. One at the beginning counts if little follows it: "503 rows do not
// match" counts rows.
func saysStatus(message string) bool {
	at := faultStatus.FindStringIndex(message)
	if at == nil {
		return false
	}
	rest := strings.TrimSpace(message[at[1]:])
	return at[0] > 0 || rest == "" || strings.HasPrefix(strings.ToLower(rest), "server") || strings.ContainsAny(message[:at[1]], "hHcC:")
}
