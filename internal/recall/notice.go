package recall

import "github.com/hindsight-memory/hindsight/internal/memory"

// lack is what an answer had to do without.
type lack int

const (
	lackModel     lack = iota // no embedding model is configured, or none of use
	lackModelNow              // there is one that does not answer
	lackModelLate             // or not in time
	lackIndex                 // the vector index does not answer
	lackIndexLate             // or not in time
)

// notice tells a reader what an answer had to do without, in the language of the question. What is found without the index
// is still ranked by meaning, since the record holds the vectors.
func (l lack) notice(question string) string {
	chinese := memory.LanguageOf(question) == memory.LanguageChinese
	pick := func(english, other string) string {
		if chinese {
			return other
		}
		return english
	}
	by := pick(": answered by words, rules and exact codes only", "：仅按词语、规则和精确代码作答")
	found := pick(": found by words, rules and exact codes only; what is worded otherwise may be missing",
		"：仅按词语、规则和精确代码查找，措辞不同的内容可能遗漏")
	switch l {
	case lackModelNow:
		return pick("the embedding model is away", "嵌入模型暂时不可用") + by
	case lackModelLate:
		return pick("the embedding model did not answer in time", "嵌入模型未能及时响应") + by
	case lackIndex:
		return pick("the vector index is away", "向量索引暂时不可用") + found
	case lackIndexLate:
		return pick("the vector index did not answer in time", "向量索引未能及时响应") + found
	case lackModel:
	}
	return pick("no embedding model is configured", "未配置嵌入模型") + by
}
