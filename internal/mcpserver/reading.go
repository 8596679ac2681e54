package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

const (
	defaultPageSize = 20
	maxPageSize     = 50
)

func (c call) asker() recall.Asker {
	return recall.Asker{TaskID: c.task, SessionID: c.session, UserID: c.user, AgentID: c.agent, Door: "mcp"}
}

// question fills in what all questions have. More items than allowed are not an error: the most are given.
func (c call) question() recall.Question {
	return recall.Question{
		Namespace: c.identity.Namespace, TopK: min(c.whole("top_k"), recall.MaxTopK), MinScore: c.number("min_score"), AsOf: c.time("as_of"),
		Asker: c.asker(),
	}
}

func (s *Server) retrieveSimilar(ctx context.Context, c call) (any, error) {
	q := c.question()
	q.Preset = memory.PresetExperience
	given, _ := c.given("current_context")
	switch given := given.(type) {
	case string:
		q.Text = given
	case map[string]any:
		fields := arguments(given)
		known := taskContext(fields)
		q.Context = &known
	}
	return s.recall(ctx, q)
}

func (s *Server) recallMemory(ctx context.Context, c call) (any, error) {
	q := c.question()
	q.Preset, q.Text = memory.PresetExperience, c.text("query")
	return s.recall(ctx, q)
}

func (s *Server) memorySearch(ctx context.Context, c call) (any, error) {
	q := c.question()
	q.Text, q.Entity = c.text("query"), c.text("entity")
	switch t := c.text("memory_type"); t {
	case "", typeAll:
	case typeExperience:
		q.Layers, q.Preset = []memory.Layer{memory.LayerSnapshot, memory.LayerRule}, memory.PresetExperience
	default:
		q.Layers, q.MemoryTypes, q.Preset = []memory.Layer{memory.LayerMemory}, []memory.MemoryType{memory.MemoryType(t)}, memory.PresetFact
	}
	return s.recall(ctx, q)
}

func (s *Server) recall(ctx context.Context, q recall.Question) (any, error) {
	a, err := s.o.Recaller.Recall(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("recall: %w", err)
	}
	return answerOf(a), nil
}

func (s *Server) checkAction(ctx context.Context, c call) (any, error) {
	action := recall.Action{Namespace: c.identity.Namespace, Tool: c.text("tool"), TaskType: c.text("task_type"), Asker: c.asker()}
	if parameters := c.object("parameters"); parameters != nil {
		raw, err := encode(parameters)
		if err != nil {
			return nil, err
		}
		action.Parameters = raw
	}
	if c.task != "" {
		action.Succeeded = func(ctx context.Context) []string { return s.succeeded(ctx, c) }
	}
	a, err := s.o.Recaller.Check(ctx, action)
	if err != nil {
		return nil, fmt.Errorf("check an action: %w", err)
	}
	out := answerOf(a)
	known := len(out.Items) > 0
	out.Known = &known
	return out, nil
}

// succeeded lists the tools that have succeeded in the caller's task, as its working memory knows it: it is late by a second or
// so, and lost once the task is over.
func (s *Server) succeeded(ctx context.Context, c call) []string {
	raw, err := s.o.Working.Working(ctx, c.identity.Namespace, c.task)
	if err != nil { // The task is not told of as it goes, or cannot be asked for: the answer is as good without.
		return nil
	}
	var w memory.Working
	if json.Unmarshal(raw, &w) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(w.Artifacts))
}

func (s *Server) getRules(ctx context.Context, c call) (any, error) {
	a, err := s.o.Recaller.Rules(ctx, c.identity.Namespace, c.text("task_type"), c.time("as_of"), c.asker())
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return answerOf(a), nil
}

func (s *Server) memoryHistory(ctx context.Context, c call) (any, error) {
	page, size := c.whole("page"), c.whole("page_size")
	if page < 0 || size < 0 {
		return nil, fmt.Errorf("%w: page and page_size count from 1", errArguments)
	}
	if page == 0 {
		page = 1
	}
	if size == 0 {
		size = defaultPageSize
	}
	size = min(size, maxPageSize)
	found, err := s.o.Items.Memories(ctx, memory.ItemFilter{
		Namespace: c.identity.Namespace, Entity: c.text("entity"), Statuses: shownStatuses(), AsOf: c.time("as_of"), Newest: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of an entity: %w", err)
	}
	out := answer{Way: string(recall.WayHistory), Items: []item{}}
	from := min((page-1)*size, len(found))
	shown := found[from:min(from+size, len(found))]
	for _, m := range shown {
		i := judgedItem(m.MemoryID, memory.LayerMemory, m.Judged, m.Version.RecordedAt, m.Timestamp)
		i.MemoryType, i.TaskType, i.ValidFrom, i.Text = string(m.MemoryType), m.TaskType, timeText(m.ValidFrom), memoryText(m)
		if m.ValidTo != nil {
			i.ValidTo = timeText(*m.ValidTo)
		}
		out.Items = append(out.Items, i)
	}
	if len(found) == 0 {
		out.Notice = "nothing is known of this entity"
	}
	// A page that is cut by its size would lose what follows; it is made smaller instead.
	out = out.finish()
	if len(out.Items) < len(shown) {
		out.Notice = fmt.Sprintf("this page holds too much: the first %d of its %d items are shown; ask again with page_size %d", len(out.Items), len(shown), len(out.Items))
	} else if from+size < len(found) {
		out.NextPage = page + 1
	}
	return out, nil
}

// explanation is the result of explain.
type explanation struct {
	item

	About             string     `json:"about_texts"`
	StatusReason      string     `json:"status_reason,omitempty"`
	ConfidenceReasons []string   `json:"confidence_reasons"`
	ImportanceReasons []string   `json:"importance_reasons"`
	Evidence          []string   `json:"evidence"`
	Uses              uses       `json:"uses"`
	Relations         []relation `json:"relations"`
}

type uses struct {
	Hits      int    `json:"hits"`
	LastHit   string `json:"last_hit,omitempty"`
	Helpful   int    `json:"helpful"`
	Unhelpful int    `json:"unhelpful"`
	FirstSeen string `json:"first_seen,omitempty"`
	Versions  int    `json:"versions"`
}

type relation struct {
	From   string  `json:"from"`
	Kind   string  `json:"kind"`
	To     string  `json:"to"`
	Weight float64 `json:"weight"`
}

// maxListed bounds the lists of an explanation.
const maxListed = 30

func (s *Server) explain(ctx context.Context, c call) (any, error) {
	id := c.text("item_id")
	found, err := s.item(ctx, c, id)
	if err != nil {
		return nil, err
	}
	used, err := s.o.Items.Uses(ctx, c.identity.Namespace, []string{id})
	if err != nil {
		return nil, fmt.Errorf("count the uses of an item: %w", err)
	}
	related, err := s.o.Items.Relations(ctx, c.identity.Namespace, []string{id})
	if err != nil {
		return nil, fmt.Errorf("read the relations of an item: %w", err)
	}
	shown := answer{Items: []item{found.shown}}.finish()
	u := used[id]
	out := explanation{
		item: shown.Items[0], About: shown.About, StatusReason: found.judged.StatusReason, ConfidenceReasons: listed(found.judged.ConfidenceReasons),
		ImportanceReasons: listed(found.judged.ImportanceReasons), Evidence: listed(found.judged.Evidence),
		Uses: uses{
			Hits: u.Hits, LastHit: timeText(u.LastHit), Helpful: u.Helpful, Unhelpful: u.Unhelpful, FirstSeen: timeText(u.FirstSeen), Versions: u.VersionNum,
		},
		Relations: []relation{},
	}
	for _, r := range related[:min(len(related), maxListed)] {
		out.Relations = append(out.Relations, relation{r.FromID, string(r.Kind), r.ToID, rounded(r.Weight)})
	}
	return out, nil
}

func listed(all []string) []string {
	return append([]string{}, all[:min(len(all), maxListed)]...)
}
