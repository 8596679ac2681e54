package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
)

// nowhere is an address at which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return "http://" + ln.Addr().String() + mcpserver.Path
}

// program is the test program in a role.
func program(tb testing.TB, role string, environment ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), environment...)
	return cmd
}

// overStdio starts a proxy and connects a client to it.
func overStdio(t *testing.T, endpoint, token string) *mcp.ClientSession {
	t.Helper()
	session := connect(t, &mcp.CommandTransport{Command: program(t, roleStdio, endpointVariable+"="+endpoint, tokenVariable+"="+token)})
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func TestStdioAnswersAtOnceWithoutADaemon(t *testing.T) {
	t.Parallel()
	session := overStdio(t, nowhere(t), "")
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 8 {
		t.Fatalf("tools: %v %v", tools, err)
	}
	templates, err := session.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 4 {
		t.Errorf("templates: %v %v", templates, err)
	}
	if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "before_task", Arguments: map[string]string{"goal": "x"}}); err != nil {
		t.Errorf("prompt: %v", err)
	}
	contains(t, refused(t, session, "retrieve_similar", map[string]any{"current_context": "x"}, "unavailable"), "hindsight up")
	contains(t, refused(t, session, "memory_write", map[string]any{"content": "x"}, "unavailable"), "hindsight up", "nothing is recalled or stored")
	if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://recent"}); err == nil || !strings.Contains(err.Error(), "hindsight up") {
		t.Errorf("resource: %v", err)
	}
}

func TestStdioPassesCallsOn(t *testing.T) {
	t.Parallel()
	w := &world{answer: answerWith("Lesson: look first 先看 🙂 \u2028 <b>")}
	session := overStdio(t, daemon(t, w, nil), "alpha-secret")
	direct := served(t, inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin()), "memory_search", map[string]any{"query": "x"})
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "memory_search", Arguments: map[string]any{"query": "x", "wait_for_previous": true},
		Meta: mcp.Meta{"session_id": "codex-1", "progressToken": "p"},
	})
	if err != nil || res.IsError {
		t.Fatalf("%v %v", res, err)
	}
	if got := w.questions[len(w.questions)-1]; got.Namespace != "alpha" || got.SessionID != "codex-1" || got.AgentID != "a" {
		t.Errorf("the daemon was asked %+v", got)
	}
	got, _ := called(t, session, "memory_search", map[string]any{"query": "x"})
	want, have := direct["items"].([]any)[0].(map[string]any), got["items"].([]any)[0].(map[string]any)
	if want["id"] != have["id"] || !strings.Contains(have["text"].(string), "先看 🙂 \u2028 <b>") {
		t.Errorf("direct %v, passed on %v", want, have)
	}
	written := served(t, session, "memory_write", map[string]any{"content": "x"})
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://item/" + written["memory_id"].(string)})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, read.Contents[0].Text, `"content":"x"`)
	if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://item/none"}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("an item that there is not: %v", err)
	}
	refused(t, session, "memory_forget", map[string]any{"memory_id": "none"}, "not_found")
}

func TestStdioSaysThatItsTokenIsRefused(t *testing.T) {
	t.Parallel()
	url := daemon(t, &world{}, nil)
	for _, token := range []string{"", "nope"} {
		contains(t, refused(t, overStdio(t, url, token), "memory_search", map[string]any{"query": "x"}, "not_allowed"), "hindsight token")
	}
}

// A daemon that is started, stopped and started again while the client stays.
func TestStdioOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	w := &world{answer: answerWith("a lesson")}
	endpoint := nowhere(t)
	session := overStdio(t, endpoint, "alpha-secret")
	for range 2 {
		refused(t, session, "memory_search", map[string]any{"query": "x"}, "unavailable")
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), mcpserver.Path))
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler(t, w, nil)}}
		server.Start()
		served(t, session, "memory_search", map[string]any{"query": "x"})
		served(t, session, "memory_write", map[string]any{"content": "x"})
		server.Close()
	}
}

func TestStdioWaitsForItsBudget(t *testing.T) {
	t.Parallel()
	url := daemon(t, &world{}, func(o *mcpserver.HTTPOptions) { o.WritesPerSecond, o.WriteBurst = 2, 1 })
	session := overStdio(t, url, "alpha-secret")
	for range 3 {
		served(t, session, "memory_write", map[string]any{"content": "x"})
	}
	never := daemon(t, &world{}, func(o *mcpserver.HTTPOptions) { o.WritesPerSecond, o.WriteBurst = 0.001, 1 })
	session = overStdio(t, never, "alpha-secret")
	served(t, session, "memory_write", map[string]any{"content": "x"})
	refused(t, session, "memory_write", map[string]any{"content": "x"}, "busy")
}

// talk runs a proxy in this process over pipes and gives what to write to and what it answers, a line each.
func talk(t *testing.T, endpoint string) (in io.WriteCloser, answers *bufio.Scanner, ended <-chan error, stop context.CancelFunc) {
	t.Helper()
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- mcpserver.ServeStdio(ctx, mcpserver.StdioOptions{Endpoint: endpoint, Logger: slog.New(slog.DiscardHandler)}, theirIn, theirOut)
		_ = theirOut.Close()
	}()
	t.Cleanup(func() {
		stop()
		_ = in.Close()
		_ = out.Close()
	})
	answers = bufio.NewScanner(out)
	answers.Buffer(nil, 1<<20)
	return in, answers, done, stop
}

func say(t *testing.T, in io.Writer, line string) {
	t.Helper()
	if _, err := io.WriteString(in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, answers *bufio.Scanner) map[string]any {
	t.Helper()
	if !answers.Scan() {
		t.Fatalf("no answer: %v", answers.Err())
	}
	var message map[string]any
	if err := json.Unmarshal(answers.Bytes(), &message); err != nil || message["jsonrpc"] != "2.0" {
		t.Fatalf("out carries something else than protocol: %s", answers.Bytes())
	}
	return message
}

func TestStdioSurvivesBadLines(t *testing.T) {
	t.Parallel()
	in, answers, ended, _ := talk(t, nowhere(t))
	say(t, in, strings.ReplaceAll(initialize, "%q", `"2025-06-18"`))
	if hear(t, answers)["result"] == nil {
		t.Fatal("no result of initialize")
	}
	say(t, in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, c := range []struct {
		line string
		code float64
		id   any
	}{
		{"npm warn something", -32700, nil},
		{`{"jsonrpc":"2.0","id":`, -32700, nil},
		{`[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, -32600, nil},
		{`[]`, -32600, nil},
		{`{"hello":"world","id":9}`, -32600, 9.0},
		{`{"jsonrpc":"1.0","id":"a","method":"ping"}`, -32600, "a"},
		{`"text"`, -32600, nil},
		{`null`, -32600, nil},
		{"\xff\xfe", -32700, nil},
		{strings.Repeat("x", 5<<20), -32600, nil},
		{`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}`, -32600, 3.0},
	} {
		say(t, in, c.line)
		answer := hear(t, answers)
		failure, _ := answer["error"].(map[string]any)
		if failure["code"] != c.code || answer["id"] != c.id {
			t.Errorf("%.60q: got %v, want code %v under id %v", c.line, answer, c.code, c.id)
		}
	}
	say(t, in, "\r\n\n   ")
	say(t, in, `{"jsonrpc":"2.0","id":77,"method":"tools/list"}`+"\r")
	if answer := hear(t, answers); answer["id"] != 77.0 || answer["result"] == nil {
		t.Errorf("after bad lines: %v", answer)
	}
	// The last line needs no line break.
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":78,"method":"ping"}`); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if answer := hear(t, answers); answer["id"] != 78.0 {
		t.Errorf("the last line: %v", answer)
	}
	if err := <-ended; err != nil {
		t.Errorf("the end of input is an error: %v", err)
	}
}

// A client that reads no answers must not keep its server alive.
func TestStdioEndsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	in, _, ended, stop := talk(t, nowhere(t))
	say(t, in, strings.ReplaceAll(initialize, "%q", `"2025-06-18"`))
	say(t, in, "no JSON, so that a second answer waits behind the first")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
}

// A call that hangs must keep neither the end of input nor a signal from ending the process.
func TestStdioEndsWithACallInFlight(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 2), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer hanging.Close()
	defer close(release)
	for _, end := range []string{"input", "signal"} {
		in, answers, ended, stop := talk(t, hanging.URL+mcpserver.Path)
		say(t, in, strings.ReplaceAll(initialize, "%q", `"2025-06-18"`))
		hear(t, answers)
		say(t, in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		say(t, in, callOf("memory_search", `{"query":"x"}`))
		<-asked
		if end == "input" {
			_ = in.Close()
		} else {
			stop()
		}
		for answers.Scan() { // what is answered at the end is read by nobody else
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", end, err)
		}
	}
}

func TestStdioWritesOnlyProtocolToStdout(t *testing.T) {
	t.Parallel()
	cmd := program(t, roleStdio, endpointVariable+"="+nowhere(t))
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(initialize, "%q", `"2025-06-18"`) + "\nnot JSON\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		callOf("memory_search", `{"query":"x"}`) + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("exit: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		var message map[string]any
		if json.Unmarshal([]byte(line), &message) != nil || message["jsonrpc"] != "2.0" {
			t.Errorf("stdout carries %q", line)
		}
	}
	if !strings.Contains(string(out), "protocolVersion") {
		t.Errorf("stdout: %s", out)
	}
}

func TestStdioEndsOnSIGTERM(t *testing.T) {
	t.Parallel()
	cmd := program(t, roleStdio, endpointVariable+"="+nowhere(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	say(t, in, strings.ReplaceAll(initialize, "%q", `"2025-06-18"`))
	hear(t, bufio.NewScanner(out))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// A client that is killed leaves its server's stdin open when another process has inherited it.
func TestStdioEndsWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	parent := program(t, roleParent, endpointVariable+"="+nowhere(t))
	held, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = held.Close()
		_ = write.Close() // until then the proxy's input is open
	}()
	parent.Stdin = held
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() {
		t.Fatal("the parent says nothing")
	}
	pid, err := strconv.Atoi(said.Text())
	if err != nil {
		t.Fatal(err)
	}
	// It must be at its work, with its parent noted, before that dies.
	say(t, write, strings.ReplaceAll(initialize, "%q", `"2025-06-18"`))
	hear(t, said)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for running(pid) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the proxy outlived its parent")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// running reports whether a process runs; one that ended and was not waited for does not.
func running(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && !strings.Contains(string(stat), ") Z ")
}
