package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// importAgent and importSession stand in envelopes of memories, which no agent wrote.
const (
	importAgent   = "~import"
	importSession = "~import"
)

// memoriesFormat reads memories that a person wrote or took from elsewhere, one a line:
// {content, memory_type, entity?, tags?, importance?, task_type?, tool?, error_type?}.
//
// An event's id is a hash of what the line says, so that importing the file twice changes nothing.
type memoriesFormat struct {
	namespace string
	now       func() time.Time
}

// memoryLine is one line.
type memoryLine struct {
	Content    string   `json:"content"`
	MemoryType string   `json:"memory_type"`
	Entity     string   `json:"entity"`
	Value      string   `json:"value"`
	Tags       []string `json:"tags"`
	Importance *float64 `json:"importance"`
	TaskType   string   `json:"task_type"`
	Tool       string   `json:"tool"`
	ErrorType  string   `json:"error_type"`
}

func (memoriesFormat) name() string { return FormatMemories }

func (memoriesFormat) describe() string {
	return "one memory a line: content, memory_type, and perhaps entity, tags, importance, task_type, tool, error_type"
}

func (memoriesFormat) detects(fields map[string]json.RawMessage) bool {
	_, content := fields["content"]
	_, kind := fields["memory_type"]
	return content && kind
}

// identity: a memory is what it says.
func (memoriesFormat) identity(evs []events.Event) string { return hashID(evs[0].Namespace, evs[0].ID) }

func (f memoriesFormat) mapLine(raw []byte) ([]events.Event, error) {
	if err := checkObject("the line", raw); err != nil {
		return nil, err
	}
	var l memoryLine
	if err := json.Unmarshal(raw, &l); err != nil {
		if !json.Valid(raw) {
			return nil, problemf(ReasonInvalidJSON, "the line is not valid JSON: %w", err)
		}
		return nil, problemf(ReasonInvalidMemory, "the line is not a memory: %w", err)
	}
	if f.namespace == "" {
		return nil, problemf(ReasonMissingNamespace, "a memory does not say whose it is: give a namespace")
	}
	if err := l.check(); err != nil {
		return nil, problemf(ReasonInvalidMemory, "%w", err)
	}
	data, err := events.EncodeData(events.ItemWritten{
		Content: l.Content, MemoryType: l.MemoryType, Entity: l.Entity, Value: l.Value, Tags: l.Tags, Importance: l.Importance,
		TaskType: l.TaskType, Tool: l.Tool, ErrorType: l.ErrorType, StatedBy: events.ActorUser,
	})
	if err != nil {
		return nil, problemf(ReasonInvalidMemory, "%w", err)
	}
	id := hashID("memory", f.namespace, string(data))
	return []events.Event{{
		ID: id, Namespace: f.namespace, AgentID: importAgent, SessionID: importSession, TaskID: events.UnjoinedTask + "/" + id,
		Time: f.now().UTC(), Kind: events.KindItemWritten, Data: data,
	}}, nil
}

func (l memoryLine) check() error {
	types := make([]string, 0, len(memory.MemoryTypes()))
	for _, t := range memory.MemoryTypes() {
		types = append(types, string(t))
	}
	switch {
	case strings.TrimSpace(l.Content) == "":
		return errors.New("content is missing: it must be the memory as one sentence")
	case !slices.Contains(types, l.MemoryType):
		return fmt.Errorf("memory_type %q: it must be one of %s", l.MemoryType, strings.Join(types, ", "))
	case l.Importance != nil && (*l.Importance < 0 || *l.Importance > 1 || math.IsNaN(*l.Importance)):
		return fmt.Errorf("importance %v: it must be between 0 and 1", *l.Importance)
	}
	return nil
}
