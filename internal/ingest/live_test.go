package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/ingest"
)

// glance is a live view at which somebody looks for messages only.
type glance struct {
	show

	asked int
	away  error
}

func (g *glance) ShowAsking(_ context.Context, subjects []string, data [][]byte) ([]bool, error) {
	g.asked++
	if g.away != nil {
		return nil, g.away
	}
	seen := make([]bool, len(subjects))
	for k, subject := range subjects {
		if seen[k] = strings.HasSuffix(subject, ".message"); seen[k] {
			g.seen = append(g.seen, subject+" "+string(data[k]))
		}
	}
	return seen, nil
}

func TestALargeBatchIsShownToThoseWhoLook(t *testing.T) {
	t.Parallel()
	var evs []events.Event
	var want []string
	for n := range 200 {
		if n%2 == 0 {
			evs = append(evs, step("a", n, events.StatusSuccess))
			continue
		}
		e := event("a", fmt.Sprint("message", n), n, events.KindMessage, `{"role":"user","content":"hello"}`)
		raw, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		evs, want = append(evs, e), append(want, events.LiveSubject(e.Namespace, e.Kind)+" "+string(raw))
	}
	for name, test := range map[string]struct {
		view  *glance
		evs   []events.Event
		want  int
		asked int
	}{
		"large":            {view: &glance{}, evs: evs, want: 100, asked: 1},
		"small":            {view: &glance{}, evs: evs[:10], want: 10},
		"nobody can tell":  {view: &glance{away: errors.New("no answer")}, evs: evs, asked: 1},
		"one of each kind": {view: &glance{}, evs: evs[:2], want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, registry := newIngestor(t, ingest.IngestorOptions{Writer: nowhere{}, Live: test.view})
			for _, err := range i.Handle(t.Context(), deliverAll(t, test.evs...)) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := metric(t, registry, "hindsight_ingest_events_total"); got != float64(len(test.evs)) {
				t.Errorf("%v events counted, want %d", got, len(test.evs))
			}
			if len(test.view.seen) != test.want || test.view.asked != test.asked {
				t.Errorf("%d events were shown after asking %d times, want %d and %d", len(test.view.seen), test.view.asked, test.want, test.asked)
			}
			if name == "large" && !slices.Equal(test.view.seen, want) {
				t.Errorf("shown were\n%q, want\n%q", test.view.seen, want)
			}
		})
	}
}
