package evaluate

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	os.Exit(code)
}

// record is a database of its own with the schema.
func record(t *testing.T, url string) *store.ClickHouse {
	t.Helper()
	st, err := store.Open(store.Options{URL: url, Database: enginetest.Database(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return st
}

func ask(t *testing.T, st *store.ClickHouse, query string) string {
	t.Helper()
	var out bytes.Buffer
	if err := st.Query(t.Context(), query, "TSV", &out); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// TestTheRawEngineWritesTheProductsRows: a ratio between different work would say nothing.
func TestTheRawEngineWritesTheProductsRows(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	st := record(t, url)
	const n = 2 * eventsPerTask * 100
	gen := newGenerator(7)
	if _, err := rawClickHouse(t.Context(), url, gen, n); err != nil {
		t.Fatal(err)
	}
	err := encoded(gen, n, func(_ []events.Event, raw [][]byte) error {
		decoded := make([]events.Event, len(raw)) // As they arrive.
		for i := range raw {
			if err := decoded[i].UnmarshalJSON(raw[i]); err != nil {
				return err
			}
		}
		return st.InsertEvents(t.Context(), decoded)
	})
	if err != nil {
		t.Fatal(err)
	}
	const digest = "SELECT count(), sum(cityHash64(*)) FROM (SELECT * EXCEPT (recorded_at) FROM %s.trace_events)"
	product, raw := ask(t, st, fmt.Sprintf(digest, st.Database())), ask(t, st, fmt.Sprintf(digest, rawDatabase))
	if product != raw || !strings.HasPrefix(product, fmt.Sprint(n, "\t")) {
		t.Errorf("the product's rows are %s, the raw engine's %s", product, raw)
	}
}

func TestWaitRowsGivesUp(t *testing.T) {
	t.Parallel()
	st := record(t, enginetest.ClickHouse(t))
	if err := st.InsertEvents(t.Context(), []events.Event{newGenerator(1).next(0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := waitRows(t.Context(), st, 2, time.Millisecond); err == nil || !strings.Contains(err.Error(), "1 of 2 events") {
		t.Errorf("waitRows = %v, want how many came", err)
	}
	if _, err := waitRows(t.Context(), st, 1, time.Minute); err != nil {
		t.Errorf("waitRows = %v, want nil", err)
	}
}
