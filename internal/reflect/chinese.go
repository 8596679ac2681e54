package reflect

import (
	"fmt"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// chinese words lessons in Chinese; names of tools and parameters and quotes stay as they are.
type chinese struct{}

func (chinese) joiner() string { return "；" }

func (chinese) when(f memory.Finding) string {
	goal := "在类似任务中"
	if f.Goal != "" {
		goal = "对于“" + f.Goal + "”这类请求，"
	}
	switch {
	case f.Error != "" && f.Kind != memory.FindingCorrection:
		return fmt.Sprintf("调用 `%s` 时，或它返回“%s”时", f.Step.Tool, f.Error)
	case f.Kind == memory.FindingDiverged && len(f.Left) > 0:
		return goal + "准备结束任务时"
	default:
		return fmt.Sprintf("%s准备调用 `%s` 时", goal, f.Step.Tool)
	}
}

func (chinese) cause(f memory.Finding) string {
	switch f.Kind {
	case memory.FindingRepaired:
		switch {
		case f.Instead != "":
			return fmt.Sprintf("`%s` 在此无法完成，`%s` 可以", f.Step.Tool, f.Instead)
		case len(f.Before) > 0:
			return fmt.Sprintf("`%s` 在 %s 之前被调用", f.Step.Tool, names(f.Before))
		default:
			return fmt.Sprintf("`%s` 的参数不符合要求：%s", f.Step.Tool, changedNames(f.Changes))
		}
	case memory.FindingUnrepaired:
		return fmt.Sprintf("`%s` 拒绝了当时的状态或参数，任务没有解决它就继续了", f.Step.Tool)
	case memory.FindingRepeated:
		return fmt.Sprintf("`%s` 失败后又原样重试", f.Step.Tool)
	case memory.FindingDiverged:
		return fmt.Sprintf("与%s成功的 %d 个任务做法不同", kindZHOf(f), f.Siblings)
	case memory.FindingLastWrite:
		return fmt.Sprintf("未知：每次调用都成功但任务失败，`%s` 是最后一次修改", f.Step.Tool)
	case memory.FindingCorrection:
		return fmt.Sprintf("用户要的与 `%s` 所做的不同", f.Step.Tool)
	case memory.FindingDecisive:
		return fmt.Sprintf("同一目标的 %d 个任务没有这一步而失败", f.Siblings)
	default:
		return ""
	}
}

func (c chinese) instruction(f memory.Finding) []string {
	var do []string
	switch {
	case f.Kind == memory.FindingDiverged && len(f.Changes) == 0 && len(f.Before) == 0:
		if len(f.Left) > 0 && f.Peers > 0 {
			do = append(do, "还要调用 "+names(f.Left)+withZH(f))
		} else if len(f.Left) > 0 {
			do = append(do, "要调用 "+names(f.Left)+withZH(f))
		}
		if len(f.Extra) > 0 {
			do = append(do, "不要调用 "+names(f.Extra))
		}
		return do
	case f.Kind == memory.FindingDecisive && len(f.Changes) == 0:
		if len(f.Extra) > 0 {
			return []string{"在 `" + f.Step.Tool + "` 之后停止", "不要调用 " + names(f.Extra)}
		}
		return []string{"要调用 `" + f.Step.Tool + "`"}
	case f.Kind == memory.FindingLastWrite && f.HandOver:
		return []string{"先检查其他工具能否完成用户的要求"}
	case f.Kind == memory.FindingLastWrite:
		check := "逐项核对参数与用户的原话"
		if f.Look != "" {
			check += "及 `" + f.Look + "` 的结果"
		}
		return []string{check, "不明确之处先询问用户"}
	case f.Instead != "":
		out := "改用 `" + f.Instead + "`"
		if len(f.InsteadParameters) > 0 {
			out += "（参数 " + names(f.InsteadParameters) + "）"
		}
		return []string{out}
	case len(f.Before) > 0:
		do = append(do, "先调用 "+names(f.Before))
	}
	for _, change := range telling(f.Changes) {
		do = append(do, c.change(change))
	}
	if len(do) == 0 {
		do = c.unrepaired(f)
	}
	return do
}

// kindZHOf is what the tasks that a finding rests on have in common.
func kindZHOf(f memory.Finding) string {
	if f.Peers > 0 {
		return "同类任务中"
	}
	return "同一目标下"
}

// triedZH says what did not help.
func triedZH(f memory.Finding) string {
	var out []string
	if len(f.Varied) > 0 {
		out = append(out, "更换 "+names(f.Varied))
	}
	if len(f.Tried) > 0 {
		out = append(out, "事先调用 "+names(f.Tried))
	}
	if len(out) == 0 {
		return ""
	}
	return "；" + strings.Join(out, "、") + "都没有用"
}

func withZH(f memory.Finding) string {
	if f.Working == nil || len(f.Left) != 1 {
		return ""
	}
	parameters := memory.TopParameters(f.Working.Parameters)
	if len(parameters) == 0 || len(parameters) > 8 {
		return ""
	}
	return "（参数 " + names(parameters) + "）"
}

func kindZH(kind string) string {
	return map[string]string{"text": "文本", "number": "数字", "boolean": "布尔值", "null": "空值", "list": "列表", "object": "对象"}[kind]
}

func (chinese) change(c memory.Change) string {
	p := path(c.Parameter)
	if form := formZH(c); form != "" {
		return form
	}
	out := ""
	switch c.Kind {
	case memory.ChangeTotal:
		return "让 " + p + " 各值之和正好等于错误信息中给出的总额"
	case memory.ChangeRenamed:
		return "参数名用 " + p + "，不要用 `" + c.FromName + "`"
	case memory.ChangeType:
		return p + " 应传" + kindZH(c.To) + like("（例如 `", c.Example, "`）") + "，而不是" + kindZH(c.From) + like("（`", c.Counter, "`）")
	case memory.ChangeFormat:
		return p + " 应写成 `" + c.To + "`，而不是 `" + c.From + "`"
	case memory.ChangeClauses:
		switch {
		case c.To == "":
			return "从 " + p + " 中去掉 `" + c.From + "`"
		case c.From == "":
			return "在 " + p + " 中加上 `" + c.To + "`"
		default:
			return "在 " + p + " 中用 `" + c.To + "` 代替 `" + c.From + "`"
		}
	case memory.ChangeAdded:
		out = "加上参数 " + p
		if literal(c.To) {
			out += "（`" + c.To + "` 有效）"
		}
	case memory.ChangeRemoved:
		return "去掉参数 " + p
	case memory.ChangeCount:
		out = p + " 应有 " + c.To + " 项（原为 " + c.From + " 项）"
	case memory.ChangeValue:
		switch {
		case literal(c.To) && literal(c.From):
			out = p + " 设为 `" + c.To + "`，而不是 `" + c.From + "`"
		case literal(c.To):
			out = p + " 设为 `" + c.To + "`"
		case c.From != c.To && !memory.Particular(c.To) && !memory.Particular(c.From):
			out = p + " 传 " + c.To + "，而不是 " + c.From
		default:
			out = "换用另一个 " + p
		}
	}
	switch c.Source {
	case memory.SourceError:
		out += "（用错误信息中给出的值）"
	case memory.SourceTool:
		out += "（取自 `" + c.SourceTool + "` 的结果）"
	case memory.SourceUser:
		out += "（先向用户询问）"
	case memory.SourceEarlier:
		if c.SourceTool != "" && !literal(c.To) {
			out += "（从 `" + c.SourceTool + "` 之前返回的结果中选）"
		}
	case memory.SourceUnknown:
	}
	return out
}

// formZH says in which form a value is to be, where that has a name; otherwise nothing.
func formZH(c memory.Change) string {
	form, ok := map[memory.Form]string{
		memory.FormMilliseconds: "毫秒数（数字）", memory.FormSeconds: "秒数（数字）", memory.FormMinutes: "分钟数（数字）", memory.FormHours: "小时数（数字）",
		memory.FormDays: "天数（数字）", memory.FormMinorUnits: "以分为单位的金额", memory.FormFraction: "0 到 1 之间的小数", memory.FormCurrencyCode: "三位字母货币代码（ISO 4217）",
		memory.FormCountryCode: "两位字母国家代码（ISO 3166）", memory.FormLanguageCode: "语言代码（BCP 47）", memory.FormClock: "24 小时制的 hh:mm",
		memory.FormE164: "E.164 格式（+ 加纯数字）", memory.FormKebab: "kebab-case 形式", memory.FormSnake: "snake_case 形式", memory.FormUpper: "大写", memory.FormLower: "小写",
		memory.FormHash: "以 # 开头的形式", memory.FormNoHash: "不带 # 的形式",
	}[c.Form]
	if !ok {
		return ""
	}
	if c.Kind == memory.ChangeType && c.To == "text" {
		form += "（文本）"
	}
	return path(c.Parameter) + " 应写成" + form + like("（例如 `", c.Example, "`）") + like("，而不是 `", c.Counter, "`")
}

func (chinese) unrepaired(f memory.Finding) []string {
	var do []string
	switch {
	case len(f.Missing) > 0:
		do = append(do, "提供它要求的 "+names(f.Missing))
	case len(f.Uneven) == 2:
		do = append(do, "让 `"+f.Uneven[0]+"` 与 `"+f.Uneven[1]+"` 的项数相同")
	case f.Total != "":
		do = append(do, "让 "+path(f.Total)+" 各值之和正好等于错误信息中给出的总额")
	case f.Look != "" && f.CauseClass == memory.CauseInformation:
		do = append(do, "先用 `"+f.Look+"` 查到它需要的内容")
	case f.CauseClass == memory.CauseInformation:
		do = append(do, "先确认所查的内容存在，或询问用户")
	case f.Look != "" && speaks(f.Error):
		do = append(do, "先用 `"+f.Look+"` 读取状态，确认不会出现该错误再调用")
	case speaks(f.Error):
		do = append(do, "先确认不会出现该错误")
	default:
		do = append(do, "先弄清它需要什么，或询问用户")
	}
	return do
}

func (c chinese) lesson(f memory.Finding, do []string) string {
	tool := "`" + f.Step.Tool + "`"
	what := strings.Join(do, c.joiner())
	quote := "失败"
	if f.Error != "" {
		quote = "返回“" + f.Error + "”"
	}
	goal := "在类似任务中，"
	if f.Goal != "" {
		goal = "对于“" + f.Goal + "”这类请求，"
	} else if f.TaskType != "" {
		goal = "在类型为 " + f.TaskType + " 的任务中，"
	}
	switch f.Kind {
	case memory.FindingRepaired:
		if ahead(f) {
			return "调用 " + tool + " 时，" + what + "；否则它会" + quote + "。这样做之后调用成功。"
		}
		return "当 " + tool + " " + quote + "时，" + what + "：这样做之后调用成功。"
	case memory.FindingUnrepaired, memory.FindingRepeated:
		out := "调用 " + tool + " 之前，" + what + "：它曾" + quote
		if f.Kind == memory.FindingRepeated {
			return out + fmt.Sprintf("。不要原样重复调用：它失败了 %d 次且一直没有成功，应改变调用方式或告诉用户。", f.Repeats)
		}
		return out + "，目前没有已知的解决办法" + triedZH(f) + "。"
	case memory.FindingDiverged:
		if f.Error != "" {
			return "调用 " + tool + " 时，" + what + "；否则它会" + quote + fmt.Sprintf("。同类任务中有 %d 个这样做，调用成功。", f.Siblings)
		}
		if len(f.Changes) > 0 {
			what = "调用 " + tool + " 时" + what
			if len(f.Left) > 0 {
				what += "；还要调用 " + names(f.Left)
			}
		}
		out := goal + what + fmt.Sprintf("：%s有 %d 个任务这样做而成功，此任务失败了", kindZHOf(f), f.Siblings)
		if f.Reason != "" {
			out += "：“" + f.Reason + "”"
		}
		return out + "。"
	case memory.FindingLastWrite:
		why := "曾有任务每次调用都成功却仍失败，这是它的最后一次修改"
		if f.Reason != "" {
			why = "任务在它之后失败：“" + f.Reason + "”"
		}
		return goal + "调用 " + tool + " 之前，" + what + "：" + why + "。"
	case memory.FindingCorrection:
		out := goal + "调用 " + tool + " 时，"
		switch {
		case len(f.Changes) > 0 && f.Said != "":
			return out + what + "：用户曾纠正“" + f.Said + "”。"
		case len(f.Changes) > 0:
			return out + what + "：用户曾这样纠正。"
		default:
			return out + "按用户的纠正去做：“" + f.Said + "”。"
		}
	case memory.FindingDecisive:
		if len(f.Changes) > 0 {
			what = "调用 " + tool + " 时" + what
		}
		return goal + what + fmt.Sprintf("：此前 %d 次尝试失败，这样做才成功。", f.Siblings)
	default:
		return what + "。"
	}
}
