package memory_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// FuzzBuildTask gives every kind whatever data: the task is built, the same in both orders, within bounds, and has JSON.
func FuzzBuildTask(f *testing.F) {
	for i, e := range everything() {
		f.Add([]byte(e.Data), []byte(everything()[(i+1)%len(everything())].Data), i%2 == 0)
	}
	f.Add([]byte(`{"step":9223372036854775807,"tool":"\ud83d","status":"failure","result":[1,{"a":null}]}`), []byte(`{"step":-1}`), true)
	f.Add([]byte(`{"status":"failure","score":1e308,"confirmed_by":"user"}`), []byte(`{"items":[null,{},{"id":null}]}`), false)
	f.Add([]byte("\xff"), []byte(`{"TOOL":"a","Status":"success","parameters":null,"call_id":"k"}`), false)
	f.Fuzz(func(t *testing.T, first, second []byte, numbered bool) {
		var evs []events.Event
		for i, kind := range append(events.Kinds(), "coffee_break") {
			for j, data := range [][]byte{first, second} {
				e := event(string(kind)+string(rune('0'+j)), i%3, kind, string(data))
				if numbered {
					e.Seq = int64(20 - i - j)
				}
				evs = append(evs, e)
			}
		}
		task := memory.BuildTask(evs, true)
		if task.Events != len(evs) || task.Revision != memory.Revision(len(evs), true) {
			t.Errorf("%d events, revision %d, of %d", task.Events, task.Revision, len(evs))
		}
		if task.Errors > len(task.Steps) || task.Corrections > 2 || task.Messages > len(evs) || task.EndedAt.Before(task.StartedAt) {
			t.Errorf("impossible counts: %+v", task)
		}
		seen := map[int]bool{}
		for _, s := range task.Steps {
			if s.Step < 1 || seen[s.Step] {
				t.Errorf("step number %d twice or below 1: %+v", s.Step, task.Steps)
			}
			seen[s.Step] = true
		}
		if again := memory.BuildTask(reversed(evs), true); !reflect.DeepEqual(again, task) {
			t.Errorf("another order gives\n%+v\nand not\n%+v", again, task)
		}
		for _, v := range []any{task, memory.WorkingOf(task)} {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("encode %T: %v", v, err)
			}
		}
	})
}
