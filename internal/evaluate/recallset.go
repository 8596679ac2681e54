package evaluate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	recallNamespace = "bench"
	// recallModel and recallDimension are of the generated vectors; the dimension is the local model's.
	recallModel     = "generated/384/v1"
	recallDimension = 384
	// vectorNoise is the length of what is added to the centre of a situation: two vectors of one situation have a cosine
	// of about 0.8, two of different situations about 0.
	vectorNoise = 0.5
	// vocabulary is how many words the details of texts are drawn from, few often and most rarely.
	vocabulary = 5_000
	// quotingShare is the share of questions that name the id of something that is in memory.
	quotingShare = 0.2
)

// field is what a generated agent works in: a type of task with the tools that it has there.
type field struct {
	taskType, noun, hanzi string
	tools                 [4]string
}

// mistake is something that goes wrong in any field. %s stands for a tool's parameter, what it is about, or its id.
type mistake struct {
	errorType, message, lesson, chinese string
	class                               memory.CauseClass
}

// recallSet makes what a recall is measured with. Its situations are all pairs of a tool and a mistake; each has its own
// centre of vectors. The same seed makes the same set.
type recallSet struct {
	seed     uint64
	fields   []field
	mistakes []mistake
	centres  [][]float32
	words    []string
	base     time.Time
}

func newRecallSet(seed int64) *recallSet {
	s := &recallSet{
		seed: uint64(seed), base: time.Now().UTC().Truncate(time.Hour).Add(-30 * 24 * time.Hour), //nolint:gosec // Any bits make a seed.
		fields: []field{
			{"shop/orders", "order", "订单", [4]string{"refund_order", "cancel_order", "change_address", "split_order"}},
			{"shop/stock", "article", "商品", [4]string{"reserve_stock", "count_stock", "move_stock", "order_stock"}},
			{"travel/flights", "flight", "航班", [4]string{"book_flight", "change_flight", "cancel_flight", "choose_seat"}},
			{"travel/hotels", "room", "房间", [4]string{"book_room", "extend_stay", "cancel_room", "change_room"}},
			{"data/reports", "report", "报表", [4]string{"run_query", "export_table", "join_tables", "draw_chart"}},
			{"code/changes", "branch", "分支", [4]string{"run_tests", "open_change", "merge_branch", "revert_change"}},
			{"office/calendar", "meeting", "会议", [4]string{"create_meeting", "move_meeting", "invite_guest", "find_room"}},
			{"bank/payments", "payment", "付款", [4]string{"send_payment", "stop_payment", "list_payments", "check_limit"}},
		},
		mistakes: []mistake{
			{"ValueError", "%s is missing for %s %s", "Pass `%s`: without it the call is refused", "调用前先填写 `%s`", memory.CauseParameter},
			{"NotFound", "no %[2]s with the id %[3]s in this account", "Look the id up by name first; %[1]s takes the internal one", "先按名称查出内部编号，再填 %s", memory.CauseInformation},
			{"PermissionDenied", "%s needs an approval for %s %s", "Ask for the approval before the change, and send `%s` after it", "先申请批准，再提交 `%s`", memory.CauseOrder},
			{"Conflict", "%[2]s %[3]s was changed meanwhile (%[1]s)", "Read it again before writing, and repeat the change with the new `%s`", "写入前重新读取，再用新的 `%s` 重试", memory.CauseOrder},
			{"LimitExceeded", "too many items in %s for %s %s", "Send at most ten in one `%s`; split the rest", "每次 `%s` 最多十个，其余分批", memory.CauseParameter},
			{"TypeError", "%s must be a number, for %s %s", "Give `%s` as a number without its unit", "`%s` 只填数字，不带单位", memory.CauseParameter},
		},
	}
	for situation := range s.situations() {
		s.centres = append(s.centres, unitVector(s.random(1, situation)))
	}
	random := s.random(2, 0)
	syllables := strings.Fields("ba co du fe gi ho ju ka le mi no pu ra se ti vo wu xe yo za ber con dul fen gar hin jor kel lam mon")
	for range vocabulary {
		var word strings.Builder
		for range 2 + random.IntN(3) {
			word.WriteString(syllables[random.IntN(len(syllables))])
		}
		s.words = append(s.words, word.String())
	}
	return s
}

// random is the source of one thing: kinds keep things of the same number apart.
func (s *recallSet) random(kind, n int) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, uint64(kind)<<40|uint64(n))) //nolint:gosec // Reproducible, not secret.
}

func (s *recallSet) situations() int { return len(s.fields) * 4 * len(s.mistakes) }

// situation is what the n-th snapshot is about.
func (s *recallSet) situation(n int) int { return s.random(3, n).IntN(s.situations()) }

func (s *recallSet) parts(situation int) (f field, tool string, m mistake, parameter string) {
	call := situation / len(s.mistakes)
	f, m = s.fields[call/4], s.mistakes[situation%len(s.mistakes)]
	return f, f.tools[call%4], m, f.noun + "_" + []string{"reason", "key", "amount", "version", "parts", "size"}[situation%len(s.mistakes)]
}

// unitVector is a direction.
func unitVector(random *rand.Rand) []float32 {
	v := make([]float32, recallDimension)
	var length float64
	for i := range v {
		x := random.NormFloat64()
		v[i], length = float32(x), length+x*x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(length))
	}
	return v
}

// vector is near the centre of a situation.
func (s *recallSet) vector(random *rand.Rand, situation int) []float32 {
	v := unitVector(random)
	var length float64
	for i := range v {
		v[i] = s.centres[situation][i] + vectorNoise*v[i]
		length += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(length))
	}
	return v
}

// detail is some words: few are in many texts, most in few.
func (s *recallSet) detail(random *rand.Rand, n int) string {
	zipf := rand.NewZipf(random, 1.1, 8, vocabulary-1)
	words := make([]string, n)
	for i := range words {
		words[i] = s.words[zipf.Uint64()]
	}
	return strings.Join(words, " ")
}

// number is the id of what the n-th snapshot is about, which no other has.
func (s *recallSet) number(n int) string { return fmt.Sprintf("W%07d", n) }

func (s *recallSet) snapshotID(n int) string {
	return memory.HashID("bench", strconv.FormatUint(s.seed, 10), strconv.Itoa(n))
}

// snapshot is the n-th, as reflection would have kept it: every fourth is in Chinese.
func (s *recallSet) snapshot(n int) memory.Snapshot {
	random, situation := s.random(4, n), s.situation(n)
	f, tool, m, parameter := s.parts(situation)
	lesson := fmt.Sprintf(m.lesson, parameter)
	about := fmt.Sprintf("%s: the user wants %s for one %s; %s", f.taskType, strings.ReplaceAll(tool, "_", " "), f.noun, s.detail(random, 14))
	if n%4 == 3 {
		lesson = fmt.Sprintf(m.chinese, parameter)
		about = fmt.Sprintf("%s：用户要处理一个%s，使用 %s；%s", f.taskType, f.hanzi, tool, s.detail(random, 10))
	}
	parameters, err := json.Marshal(map[string]any{f.noun + "_id": s.number(n), "note": s.detail(random, 3)})
	if err != nil {
		panic(err) // Plain values always encode.
	}
	return memory.Snapshot{
		SnapshotID: s.snapshotID(n), Namespace: recallNamespace, Timestamp: s.base.Add(time.Duration(n) * time.Second),
		AgentID: fmt.Sprintf("agent-%d", n%8), SessionID: fmt.Sprintf("session-%d", n/3), TaskID: fmt.Sprintf("task-%d", n/3), GoalID: fmt.Sprintf("goal-%d", n/30), Step: 1 + n%9,
		TaskContext: memory.TaskContext{TaskType: f.taskType, InputSummary: about, AvailableTools: f.tools[:]},
		Decision:    memory.Decision{ToolSelected: tool, Parameters: parameters, ReasoningPath: s.detail(random, 20)},
		Outcome: memory.Outcome{
			Status: events.StatusFailure, ErrorType: m.errorType, ErrorMessage: fmt.Sprintf(m.message, parameter, f.noun, s.number(n)), ExecutionTimeMS: int64(random.IntN(900)),
		},
		Reflection: &memory.Reflection{
			RootCause: "the call was made without what it needs: " + s.detail(random, 6), RootCauseClass: m.class, Lesson: lesson, Alternative: tool + " with " + parameter,
		},
		AppliesWhen: "before " + tool + " of a " + f.noun, Situation: about, ReflectedBy: "evidence",
		Judged: memory.Judged{
			Evidence: []string{fmt.Sprintf("event-%d", n)}, Trust: memory.TrustAgentInferred, Confidence: 0.6, Importance: 0.3 + 0.6*random.Float64(), Status: memory.ItemActive,
		},
		Version: memory.Version{TaskRevision: 3, Writer: "bench", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

// asked is a question with its vector.
type asked struct {
	text, taskType string
	situation      int
	vector         []float32
	// tool and parameters are of the call that [recall.Service.Check] is asked about.
	tool       string
	parameters []byte
}

// question is the n-th of those to a memory of so many snapshots.
func (s *recallSet) question(n, size int) asked {
	random := s.random(5, n)
	like := random.IntN(size)
	q := asked{situation: s.situation(like)}
	f, tool, m, parameter := s.parts(q.situation)
	q.text = fmt.Sprintf("%s for a %s: %s", strings.ReplaceAll(tool, "_", " "), f.noun, s.detail(random, 8))
	if random.Float64() < quotingShare {
		q.text = tool + " fails: " + fmt.Sprintf(m.message, parameter, f.noun, s.number(like))
	}
	if n%2 == 0 {
		q.taskType = f.taskType
	}
	q.vector = s.vector(random, q.situation)
	q.tool, q.parameters = tool, fmt.Appendf(nil, `{"%s_id":%q,"note":"new"}`, f.noun, s.number(size+n))
	return q
}
