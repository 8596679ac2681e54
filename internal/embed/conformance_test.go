package embed_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("Local", func(t *testing.T) {
		t.Parallel()
		dir := localDir(t)
		conformance(t, 384, func(t *testing.T) embed.Model {
			t.Helper()
			l, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
	})
	t.Run("Endpoint", func(t *testing.T) {
		t.Parallel()
		conformance(t, serverDimension, func(t *testing.T) embed.Model {
			t.Helper()
			return openEndpoint(t, newOpenAIServer(t, nil), func(o *embed.EndpointOptions) { o.Batch = 3 })
		})
	})
	t.Run("Kept", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		conformance(t, serverDimension, func(t *testing.T) embed.Model {
			t.Helper()
			return embed.Keep(openEndpoint(t, newOpenAIServer(t, nil), func(o *embed.EndpointOptions) { o.Batch = 3 }), dir, slog.New(slog.DiscardHandler))
		})
	})
	t.Run("None", func(t *testing.T) {
		t.Parallel()
		if _, err := (embed.None{}).Dimension(t.Context()); !errors.Is(err, embed.ErrNone) {
			t.Errorf("Dimension = %v, want ErrNone", err)
		}
		if v, err := (embed.None{}).Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrNone) || v != nil {
			t.Errorf("Embed = %v, %v, want ErrNone", v, err)
		}
		if err := (embed.None{}).Close(); err != nil {
			t.Error(err)
		}
	})
}

// conformance checks the contract of [embed.Model]; open returns a new model
// that the subtest closes.
func conformance(t *testing.T, dimension int, open func(*testing.T) embed.Model) {
	t.Helper()
	m := open(t)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("close again: %v", err)
		}
		if _, err := m.Embed(context.Background(), []string{"a"}); !errors.Is(err, embed.ErrClosed) {
			t.Errorf("Embed after Close = %v, want ErrClosed", err)
		}
	})
	if m.Name() == "" {
		t.Error("the model has no name")
	}
	if got, err := m.Dimension(t.Context()); err != nil || got != dimension {
		t.Fatalf("Dimension = %d, %v; want %d", got, err, dimension)
	}
	texts := []string{
		"Check the order before you refund it.", "升级系统以前要保存设置。", "テストは成功しました。", "Проверьте адрес.", "تحقق من العنوان", "आदेश", "404",
		"👍", strings.Repeat("\uFDFA", 60), "before\x00after", "broken \xff\xfe bytes", strings.Repeat("数据库 ", 3000), "x",
	}
	together, err := m.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	if len(together) != len(texts) {
		t.Fatalf("%d vectors for %d texts", len(together), len(texts))
	}
	for i, v := range together {
		if len(v) != dimension {
			t.Errorf("text %d: %d dimensions, want %d", i, len(v), dimension)
		}
		if n := math.Sqrt(embed.Cosine(v, v)); math.Abs(n-1) > 1e-5 {
			t.Errorf("text %d: length %g, want 1", i, n)
		}
		alone, err := m.Embed(t.Context(), texts[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		if similar := embed.Cosine(v, alone[0]); similar < 0.9999 {
			t.Errorf("text %d alone has cosine %g to itself in a batch", i, similar)
		}
		for j := range i {
			if slices.Equal(v, together[j]) {
				t.Errorf("texts %d and %d have the same vector", i, j)
			}
		}
	}
	if v, err := m.Embed(t.Context(), nil); err != nil || len(v) != 0 {
		t.Errorf("Embed of nothing = %v, %v", v, err)
	}
	for _, empty := range []string{"", " \n", "\x00", "\xff"} {
		if _, err := m.Embed(t.Context(), []string{"a", empty}); !errors.Is(err, embed.ErrEmptyText) {
			t.Errorf("Embed(%q) = %v, want ErrEmptyText", empty, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Embed(ctx, texts); !errors.Is(err, memory.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("Embed with an ended ctx = %v, want ErrUnavailable and Canceled", err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			v, err := m.Embed(t.Context(), texts[i%3:i%3+2])
			if err != nil || embed.Cosine(v[1], together[i%3+1]) < 0.9999 {
				t.Errorf("concurrent Embed gives another vector (%v)", err)
			}
		})
	}
	wg.Wait()
}
