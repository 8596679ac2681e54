package events_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnotherModuleCanUseThePackage builds and runs a program of its own module, as an agent would, without a network.
func TestAnotherModuleCanUseThePackage(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/agent\n\ngo 1.26.0\n\n" +
			"require github.com/hindsight-memory/hindsight v0.0.0\n\n" +
			"replace github.com/hindsight-memory/hindsight => " + root + "\n",
		"main.go": `package main

import (
	"context"
	"fmt"

	"github.com/hindsight-memory/hindsight/events"
)

func main() {
	p, err := events.NewPublisher("nats://127.0.0.1:1", events.PublisherOptions{})
	if err != nil {
		panic(err)
	}
	err = p.Publish(context.Background(), events.Event{
		Namespace: "acme", AgentID: "a", SessionID: "s", TaskID: "t", Kind: events.KindMessage,
		Data: []byte(` + "`" + `{"role":"user","content":"hello"}` + "`" + `),
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Close(ctx)
	fmt.Println("published:", err, "schema:", len(events.JSONSchema()) > 0)
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GONOSUMDB=*", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if got, want := run("run", "."), "published: <nil> schema: true\n"; got != want {
		t.Errorf("the program says %q, want %q", got, want)
	}
	// An agent must not have to build a database engine to publish an event.
	for dep := range strings.FieldsSeq(run("list", "-deps", ".")) {
		if strings.Contains(dep, "hindsight-memory/hindsight/internal") || strings.Contains(dep, "nats-server") || strings.Contains(dep, "clickhouse") {
			t.Errorf("the package depends on %s", dep)
		}
	}
}
