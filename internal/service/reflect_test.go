package service_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// asAgent publishes events by the publisher that agents embed, which knows one stream only.
func asAgent(t *testing.T, env map[string]string, evs ...events.Event) {
	t.Helper()
	p, err := events.NewPublisher(env["HINDSIGHT_NATS_URL"], events.PublisherOptions{Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range evs {
		if err := p.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func memories(t *testing.T, p *service.Parts, f memory.ItemFilter) []memory.Memory {
	t.Helper()
	f.Namespace = "acme.support"
	found, err := p.Store.Memories(t.Context(), f)
	if err != nil {
		t.Log("memories:", err)
	}
	return found
}

// TestWhatAnAgentPublishesToBeStoredIsStored publishes writes where an agent publishes everything else: they must become
// items, exactly once, and an agent must not pass for a person.
func TestWhatAnAgentPublishesToBeStoredIsStored(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p := open(t, env, "one")
	run(t, p, service.Ingest)
	agent := publisher(t, env)

	written := event("a", "write", 1, events.KindItemWritten, `{"content":"The export takes ISO dates, key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789","entity":"export"}`)
	asAgent(t, env, written, event("a", "other", 2, events.KindMessage, `{"role":"user","content":"hello"}`))
	// Nobody keeps writes yet: the event waits in the other stream and no longer in its own.
	eventually(t, "the write on WRITES", func() bool {
		return messages(t, agent, bus.StreamWrites) == 1 && messages(t, agent, bus.StreamTraces) == 0
	})
	publish(t, agent, written) // A redelivery.
	eventually(t, "an empty TRACES", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
	run(t, p, service.Reflect)
	var held []memory.Memory
	eventually(t, "the memory", func() bool {
		held = memories(t, p, memory.ItemFilter{Entity: "export"})
		return len(held) == 1
	})
	if held[0].Status != memory.ItemActive || !slices.Equal(held[0].Evidence, []string{written.ID}) || held[0].TaskID != "a" {
		t.Errorf("memory %+v", held[0])
	}
	if content := held[0].Content; !strings.HasPrefix(content, "The export takes ISO dates") || strings.Contains(content, "sk-proj") {
		t.Errorf("content %q: want the words without the key", content)
	}

	forget := fmt.Sprintf(`{"item_id":%q,"change":"forget","reason":"wrong","by_person":true}`, held[0].MemoryID)
	asAgent(t, env, event("a", "forget", 3, events.KindItemChanged, forget))
	eventually(t, "the forgotten memory", func() bool {
		held = memories(t, p, memory.ItemFilter{Entity: "export", Statuses: []memory.ItemStatus{memory.ItemForgotten}})
		return len(held) == 1
	})
	if held[0].Version.WriterKind != memory.WriterMachine || held[0].StatusReason != "wrong" {
		t.Errorf("an agent's change has the version %+v, reason %q", held[0].Version, held[0].StatusReason)
	}
	// One that can never be done is a dead letter, and keeps nothing else from being done.
	asAgent(t, env,
		event("a", "nothing", 4, events.KindItemChanged, `{"item_id":"no-such-item","change":"forget"}`),
		event("a", "second", 5, events.KindItemWritten, `{"content":"Totals are in cents","entity":"totals"}`))
	eventually(t, "the second memory", func() bool { return len(memories(t, p, memory.ItemFilter{Entity: "totals"})) == 1 })
	eventually(t, "the dead letter", func() bool {
		letters, err := p.Store.DeadLetters(t.Context(), memory.DeadLetterFilter{Limit: 10})
		return err == nil && len(letters) == 1 && letters[0].Reason == "item_not_found" && letters[0].Namespace == "acme.support"
	})
}

// TestReflectionOutlivesItsModel lets a model answer nonsense, then nothing: every task is reflected all the same, and the
// record says by whom and why.
func TestReflectionOutlivesItsModel(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch n := asked.Add(1); n % 3 {
		case 0:
			_, _ = w.Write([]byte("<html>this is no JSON"))
		default:
			content := []string{"", "no JSON at all ```", `{"reflections":[{"lesson":"Be careful."}],"memories":"many"}`}[n%3]
			_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": content}, "finish_reason": "stop"}}})
		}
	}))
	t.Cleanup(model.Close)
	env := environment(t)
	env["HINDSIGHT_LLM_BASE_URL"], env["REFLECTION_MODEL"] = model.URL+"/v1", "parrot"
	p := open(t, env, "one")
	run(t, p, service.Ingest)
	run(t, p, service.Reflect)
	agent := publisher(t, env)
	var keys []memory.TaskKey
	for i := range 6 {
		id := fmt.Sprint("task-", i)
		keys = append(keys, memory.TaskKey{Namespace: "acme.support", TaskID: id})
		failed := event(id, "step1", 1, events.KindStepFinished, `{"tool":"pay","parameters":{"amount":"twelve"},"status":"failure","error_type":"ValueError","error_message":"amount must be a number"}`)
		repaired := event(id, "step2", 2, events.KindStepFinished, `{"tool":"pay","parameters":{"amount":12},"status":"success","result":"paid"}`)
		publish(t, agent, started(id), failed, repaired, finished(id))
	}
	eventually(t, "all reflections", func() bool {
		states, err := p.Store.TaskStates(t.Context(), keys)
		if err != nil {
			return false
		}
		reflections, err := p.Store.Reflections(t.Context(), keys)
		for _, key := range keys {
			if r := reflections[key]; err != nil || !states[key].Closed || !r.Closed || r.Revision < states[key].Revision {
				return false
			}
		}
		return true
	})
	if asked.Load() == 0 {
		t.Fatal("the model was never asked")
	}
	reflections, err := p.Store.Reflections(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if r := reflections[key]; r.ReflectedBy != "evidence" || r.Fallback == "" || r.Kept == 0 {
			t.Errorf("%s: %+v; want the evidence critic's, with the reason", key.TaskID, r)
		}
	}
	if n := messages(t, agent, bus.StreamDeadLetter); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
