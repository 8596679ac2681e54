package embed_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

// counting is a model that notes what it is asked for.
type counting struct {
	embed.None

	name  string
	mu    sync.Mutex
	asked []string
}

func (c *counting) Name() string                         { return c.name }
func (*counting) Dimension(context.Context) (int, error) { return serverDimension, nil }
func (*counting) Version() string                        { return "v7" }

func (c *counting) Embed(_ context.Context, texts []string) ([][]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, texts...)
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = serverVector(c.name+text, serverDimension)
	}
	return vectors, nil
}

func (c *counting) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	slices.Sort(asked)
	return asked
}

// vectorsOf asks a model of the given name, new each time, and returns what that was asked for.
func vectorsOf(t *testing.T, name, dir string, texts ...string) (vectors [][]float32, asked []string) {
	t.Helper()
	model := &counting{name: name}
	e, err := embed.New(embed.Keep(model, dir, slog.New(slog.NewTextHandler(t.Output(), nil))), embed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if identity, err := e.Identity(t.Context()); err != nil || !strings.HasSuffix(identity, "/v7") {
		t.Errorf("its identity is %s, %v: the version of the model is lost", identity, err)
	}
	if vectors, err = e.Embed(t.Context(), embed.Background, texts...); err != nil {
		t.Fatal(err)
	}
	return vectors, model.take()
}

func TestVectorsAreKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first, asked := vectorsOf(t, "one", dir, "a", "b")
	if !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("asked for %q", asked)
	}
	second, asked := vectorsOf(t, "one", dir, "b", "c", "a")
	if !slices.Equal(asked, []string{"c"}) {
		t.Errorf("asked again for %q", asked)
	}
	if embed.Cosine(first[0], second[2]) < 0.9999 || embed.Cosine(first[1], second[0]) < 0.9999 || embed.Cosine(first[0], second[1]) > 0.99 {
		t.Error("a kept vector is another one")
	}
	if _, asked := vectorsOf(t, "two", dir, "a"); len(asked) != 1 {
		t.Errorf("another model was asked for %q: it was given a vector that is not its own", asked)
	}
	// What is not whole, as after a full disk, is made again; what is no vector as well.
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		content := make([]byte, 4*serverDimension)
		if files%2 == 0 {
			content = content[:5]
		}
		return os.WriteFile(path, content, 0o600)
	})
	if err != nil || files != 4 {
		t.Fatalf("%d files, %v; want one for each text and model", files, err)
	}
	if _, asked := vectorsOf(t, "one", dir, "a", "b", "c"); len(asked) != 3 {
		t.Errorf("asked for %q after all files were damaged", asked)
	}
	if _, asked := vectorsOf(t, "one", dir, "a", "b", "c"); len(asked) != 0 {
		t.Errorf("damaged files were not replaced: asked for %q", asked)
	}
}

func TestAFolderThatCannotBeWrittenCostsNoVector(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := embed.Keep(&counting{name: "one"}, filepath.Join(file, "below"), slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		if vectors, err := m.Embed(t.Context(), []string{"a", "b"}); err != nil || len(vectors) != 2 || len(vectors[1]) != serverDimension {
			t.Errorf("%v, %v", vectors, err)
		}
	}
	if told := strings.Count(log.String(), "level=WARN"); told != 1 || !strings.Contains(log.String(), file) {
		t.Errorf("told %d times: %s", told, &log)
	}
}

func TestTwoMayKeepTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	texts := numbered("text", 50)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			m := embed.Keep(&counting{name: "one"}, dir, slog.New(slog.DiscardHandler))
			if _, err := m.Embed(t.Context(), texts); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if _, asked := vectorsOf(t, "one", dir, texts...); len(asked) != 0 {
		t.Errorf("asked again for %q", asked)
	}
}
