package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// bearer presents an access token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// agent is a client of the MCP server.
type agent struct {
	t       *testing.T
	session *mcp.ClientSession
}

// agent connects a client over HTTP, with a token unless that is empty. query, such as ?toolset=full, is added to the
// address.
func (in *installation) agent(t *testing.T, token, query string) agent {
	t.Helper()
	session, err := dial(t, in.mcp+query, token)
	if err != nil {
		t.Fatalf("connect: %v\n%s", err, in.log)
	}
	return agent{t, session}
}

func dial(t *testing.T, address, token string) (*mcp.ClientSession, error) {
	t.Helper()
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	client := &http.Client{Transport: connections}
	if token != "" {
		client.Transport = bearer{token, connections}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(context.WithoutCancel(t.Context()),
		&mcp.StreamableClientTransport{Endpoint: address, HTTPClient: client, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = session.Close() })
	return session, nil
}

// stdio starts the proxy as a coding agent does.
func (in *installation) stdio(t *testing.T, settings ...string) (agent, *enginetest.Log) {
	t.Helper()
	said := &enginetest.Log{}
	cmd := exec.Command(filepath.Join(programs, "mcp"), "--stdio")
	cmd.Env, cmd.Stderr = append(slices.Clone(in.env), settings...), said
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(context.WithoutCancel(t.Context()), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("start mcp --stdio: %v\n%s", err, said)
	}
	t.Cleanup(func() { _ = session.Close() })
	return agent{t, session}, said
}

// args are the arguments of a tool.
type args = map[string]any

// shown is an item of an answer.
type shown struct {
	ID         string  `json:"id"`
	Layer      string  `json:"layer"`
	Text       string  `json:"text"`
	Confidence float64 `json:"confidence"`
}

// reply is what a tool answered.
type reply struct {
	RecallID   string  `json:"recall_id"`
	Known      bool    `json:"known"`
	Way        string  `json:"way"`
	Notice     string  `json:"notice"`
	Items      []shown `json:"items"`
	Status     string  `json:"status"`
	MemoryID   string  `json:"memory_id"`
	SnapshotID string  `json:"snapshot_id"`
	Error      struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	} `json:"error"`
	Uses struct {
		Hits      int `json:"hits"`
		Helpful   int `json:"helpful"`
		Unhelpful int `json:"unhelpful"`
		Versions  int `json:"versions"`
	} `json:"uses"`
	Confidence float64 `json:"confidence"`

	raw string
}

// ids are those of the items of an answer.
func (r reply) ids() []string {
	ids := []string{}
	for _, i := range r.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

func (r reply) has(id string) bool { return slices.Contains(r.ids(), id) }

// try calls a tool and gives what it answered, and whether that is an error.
func (a agent) try(tool string, arguments args) (reply, bool) {
	a.t.Helper()
	res, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		a.t.Fatalf("%s answered %T", tool, res.Content[0])
	}
	r := parse[reply](a.t, text.Text)
	r.raw = text.Text
	return r, res.IsError
}

// call calls a tool that must succeed.
func (a agent) call(tool string, arguments args) reply {
	a.t.Helper()
	r, failed := a.try(tool, arguments)
	if failed {
		a.t.Fatalf("%s %v failed: %s", tool, arguments, r.raw)
	}
	return r
}

// read reads a resource; an error is what it says.
func (a agent) read(uri string) (string, error) {
	a.t.Helper()
	res, err := a.session.ReadResource(a.t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return res.Contents[0].Text, nil
}

// token makes an access token.
func (in *installation) token(t *testing.T, namespace, scope string) (secret, id string) {
	t.Helper()
	made := parse[struct {
		Token   string `json:"token"`
		TokenID string `json:"token_id"`
	}](t, in.run("token", "create", "--namespace", namespace, "--scope", scope, "--json"))
	return made.Token, made.TokenID
}

// until waits for a condition that says what is missing.
func (in *installation) until(t *testing.T, condition func() string) {
	t.Helper()
	in.waitFor(func() error {
		if missing := condition(); missing != "" {
			return errors.New(missing)
		}
		return nil
	})
}

// TestMemoryOverMCP is an agent's day with one installation: every part is real, and each story has a namespace of its
// own.
func TestMemoryOverMCP(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	began := time.Now()
	in.start()
	ready := time.Since(began)
	in.run("import", "--namespace", "demo", example(t))
	demo, _ := in.token(t, "demo", "read")
	first := in.agent(t, demo, "")
	in.until(t, func() string {
		if r := first.call("retrieve_similar", args{"current_context": "Refund order 1042, the amount is twelve fifty"}); len(r.Items) == 0 {
			return "no lesson of the examples yet: " + r.raw
		}
		return ""
	})
	t.Logf("from an empty folder: ready after %s, the first recalled lesson after %s", ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))

	// The stories share the installation, which ends after them.
	t.Cleanup(in.stop)
	for name, story := range map[string]func(*testing.T, *installation){
		"write, read, forget, restore": writeReadForget, "no other namespace": noOtherNamespace, "tokens": accessTokens, "snapshots": storedSnapshots,
		"feedback": judgedItems, "joined recalls": joinedRecalls, "two languages": twoLanguages, "proxy": proxied, "an agent's own events": nativeWrites,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, in)
		})
	}
}

func writeReadForget(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.write", "write")
	a := in.agent(t, token, "")
	began := time.Now()
	written := a.call("memory_write", args{"content": "The billing export of tenant Meridian takes ISO dates only", "entity": "billing export", "value": "ISO dates"})
	confirmed := time.Since(began)
	if written.MemoryID == "" || written.Status != "stored" {
		t.Fatalf("write: %s", written.raw)
	}
	id := written.MemoryID
	// What was confirmed is there: by its address and by its entity, without waiting.
	if text, err := a.read("memory://item/" + id); err != nil || !strings.Contains(text, "Meridian") {
		t.Errorf("the item at once: %s, %v", text, err)
	}
	if r := a.call("memory_search", args{"entity": "billing export"}); !r.has(id) {
		t.Errorf("search by entity at once: %s", r.raw)
	}
	question := args{"query": "which date format does the billing export need?"}
	in.until(t, func() string {
		if r := a.call("memory_search", question); !r.has(id) {
			return "not found by its meaning: " + r.raw
		}
		return ""
	})
	t.Logf("confirmed after %s, found by its meaning after %s", confirmed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))

	if again := a.call("memory_write", args{"content": "The billing export of tenant Meridian takes ISO dates only", "entity": "billing export", "value": "ISO dates"}); again.MemoryID != id {
		t.Errorf("the same write again has the id %s, want %s", again.MemoryID, id)
	}

	if r := a.call("memory_forget", args{"memory_id": id, "reason": "it is wrong"}); r.Status != "forgotten" {
		t.Errorf("forget: %s", r.raw)
	}
	full := in.agent(t, token, "?toolset=full")
	for tool, arguments := range map[string]args{
		"memory_search": question, "retrieve_similar": {"current_context": "which date format does the billing export need?"}, "check_action": {"tool": "billing export"}, "get_rules": {},
		"memory_history": {"entity": "billing export"},
	} {
		if r := full.call(tool, arguments); strings.Contains(r.raw, "Meridian") {
			t.Errorf("%s still shows what was forgotten: %s", tool, r.raw)
		}
	}
	if r := a.call("memory_search", args{"entity": "billing export"}); len(r.Items) != 0 {
		t.Errorf("search by entity still shows what was forgotten: %s", r.raw)
	}
	if text, err := a.read("memory://recent"); err != nil || strings.Contains(text, "Meridian") {
		t.Errorf("recent still shows what was forgotten: %s, %v", text, err)
	}
	if text, err := a.read("memory://item/" + id); err == nil {
		t.Errorf("a forgotten item is still read: %s", text)
	}
	if r, failed := full.try("explain", args{"item_id": id}); !failed || r.Error.Kind != "not_found" {
		t.Errorf("a forgotten item is still explained: %s", r.raw)
	}
	// A late retry of the write does not bring it back; a person does.
	a.call("memory_write", args{"content": "The billing export of tenant Meridian takes ISO dates only", "entity": "billing export", "value": "ISO dates"})
	if r := a.call("memory_search", args{"entity": "billing export"}); len(r.Items) != 0 {
		t.Errorf("written again, what was forgotten is back: %s", r.raw)
	}
	in.run("forget", "--namespace", "stories.write", "--restore", id)
	if r := a.call("memory_search", args{"entity": "billing export"}); !r.has(id) {
		t.Errorf("restored, it is not there: %s", r.raw)
	}
	in.until(t, func() string {
		if r := a.call("memory_search", question); !r.has(id) {
			return "restored, it is not found by its meaning: " + r.raw
		}
		return ""
	})
}

// everything asks all there is to ask, by every tool and resource, for a thing of another namespace.
func everything(t *testing.T, in *installation, token, canary, memoryID, snapshotID, task, session string) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, set := range []string{"core", "full", "compat"} {
		a := in.agent(t, token, "?toolset="+set)
		listed, err := a.session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]args{
			"retrieve_similar": {"current_context": canary}, "check_action": {"tool": canary, "parameters": args{"x": 1}}, "get_rules": {}, "memory_search": {"query": canary, "entity": canary},
			"memory_history": {"entity": canary}, "explain": {"item_id": memoryID}, "retrieve_memory": {"query": canary}, "recall_memory": {"query": canary},
			"memory_forget": {"memory_id": memoryID}, "forget_memory": {"memory_id": memoryID}, "memory_feedback": {"item_id": memoryID, "helpful": false},
			"memory_update": {"memory_id": memoryID, "content": "overwritten"}, "update_memory": {"memory_id": memoryID, "content": "overwritten"},
			// These write into the caller's own namespace.
			"memory_write": {"content": "a thing of my own"}, "store_memory": {"content": "another of my own"},
			"store_snapshot": {"task_context": args{"input_summary": "mine"}, "decision": args{"tool_selected": "mine"}, "outcome": args{"status": "success"}},
		}
		for _, tool := range listed.Tools {
			arguments, known := asked[tool.Name]
			if !known {
				t.Errorf("tool %s is not asked by this test", tool.Name)
				continue
			}
			r, _ := a.try(tool.Name, arguments)
			said[set+" "+tool.Name] = r.raw
		}
		if set != "core" {
			continue
		}
		for _, uri := range []string{"memory://recent", "memory://rules/" + canary, "memory://item/" + memoryID, "memory://item/" + snapshotID, "memory://working/" + task, "memory://summary/" + session} {
			text, err := a.read(uri)
			said[uri] = fmt.Sprint(text, err)
		}
	}
	return said
}

func noOtherNamespace(t *testing.T, in *installation) {
	t.Helper()
	const canary = "kumquat-7731"
	mine, _ := in.token(t, "stories.mine", "write")
	theirs, _ := in.token(t, "stories.theirs", "write")
	a := in.agent(t, mine, "")
	written := a.call("memory_write", args{"content": "The vault code word is " + canary + "-secret", "entity": canary, "value": canary + "-secret", "task_id": "task-" + canary, "session_id": "session-1"})
	stored := a.call("store_snapshot", args{
		"task_context": args{"task_type": "vault", "input_summary": "open the vault " + canary}, "decision": args{"tool_selected": canary, "parameters": args{"x": 1}},
		"outcome": args{"status": "failure", "error_type": "VaultError", "error_message": canary + "-secret is wrong"}, "task_id": "task-" + canary, "session_id": "session-1",
	})
	in.until(t, func() string {
		if r := a.call("memory_search", args{"query": "The vault code word is " + canary}); !strings.Contains(r.raw, canary+"-secret") {
			return "the owner does not find it: " + r.raw
		}
		if r := a.call("check_action", args{"tool": canary, "parameters": args{"x": 1}}); !r.Known {
			return "the owner is not warned: " + r.raw
		}
		return ""
	})
	for where, said := range everything(t, in, theirs, canary, written.MemoryID, stored.SnapshotID, "task-"+canary, "session-1") {
		if strings.Contains(said, canary+"-secret") {
			t.Errorf("%s shows another namespace: %s", where, said)
		}
	}
	// And what they tried to change is as it was.
	if text, err := a.read("memory://item/" + written.MemoryID); err != nil || !strings.Contains(text, canary+"-secret") {
		t.Errorf("the owner's item: %s, %v", text, err)
	}
	if got := in.sql("SELECT uniqExact(namespace), count() FROM memories WHERE memory_id = '" + written.MemoryID + "'"); got != "1\t1" {
		t.Errorf("namespaces and versions of the item: %s, want 1 and 1", got)
	}
}

func accessTokens(t *testing.T, in *installation) {
	t.Helper()
	post := func(token string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.mcp, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode == http.StatusUnauthorized && !strings.Contains(res.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("401 without WWW-Authenticate: %v", res.Header)
		}
		return res.StatusCode
	}
	good, _ := in.token(t, "stories.tokens", "read")
	revoked, id := in.token(t, "stories.tokens", "read")
	in.run("token", "revoke", "--namespace", "stories.tokens", id)
	for token, want := range map[string]int{good: http.StatusOK, "hs_nonsense": http.StatusUnauthorized, revoked: http.StatusUnauthorized} {
		if got := post(token); got != want {
			t.Errorf("HTTP status %d, want %d", got, want)
		}
	}
	reader := in.agent(t, good, "")
	if r, failed := reader.try("memory_write", args{"content": "x"}); !failed || r.Error.Kind != "not_allowed" {
		t.Errorf("a token that may only read wrote: %s", r.raw)
	}
}

func storedSnapshots(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.snapshots", "write")
	a := in.agent(t, token, "")
	call := args{"table": "orders", "range": "2026-01-01/2026-01-31"}
	stored := a.call("store_snapshot", args{
		"task_context": args{"task_type": "reporting", "input_summary": "Export all orders of January as CSV", "available_tools": []string{"export_table"}},
		"decision":     args{"tool_selected": "export_table", "parameters": call, "reasoning_path": "the user wants a file"},
		"outcome":      args{"status": "failure", "error_type": "RangeError", "error_message": "range must be two ISO dates separated by a comma", "execution_time_ms": 12},
	})
	if stored.SnapshotID == "" || stored.Status != "stored" {
		t.Fatalf("store_snapshot: %s", stored.raw)
	}
	if r := a.call("check_action", args{"tool": "export_table", "parameters": call}); !r.Known || !r.has(stored.SnapshotID) {
		t.Errorf("check_action of the same call at once: %s", r.raw)
	}
	if r := a.call("check_action", args{"tool": "send_mail", "parameters": args{"to": "x"}}); r.Known || len(r.Items) != 0 || r.Notice != "" {
		t.Errorf("check_action of another tool is not silent: %s", r.raw)
	}
	in.until(t, func() string {
		r := a.call("retrieve_similar", args{"current_context": args{"task_type": "reporting", "input_summary": "Export the orders of March as a CSV file", "available_tools": []string{"export_table"}}})
		if !r.has(stored.SnapshotID) {
			return "not retrieved: " + r.raw
		}
		return ""
	})
}

func judgedItems(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.feedback", "write")
	a := in.agent(t, token, "?toolset=full")
	id := a.call("memory_write", args{"content": "Invoices are sent on Mondays", "entity": "invoices"}).MemoryID
	before := a.call("explain", args{"item_id": id})
	if r := a.call("memory_feedback", args{"item_id": id, "helpful": true, "comment": "it was so"}); r.Status != "recorded" {
		t.Errorf("feedback: %s", r.raw)
	}
	after := a.call("explain", args{"item_id": id})
	if after.Confidence <= before.Confidence || after.Uses.Helpful != 1 || after.Uses.Versions != before.Uses.Versions+1 {
		t.Errorf("after a helpful vote: %s\nbefore: %s", after.raw, before.raw)
	}
	a.call("memory_feedback", args{"item_id": id, "helpful": false})
	a.call("memory_feedback", args{"item_id": id, "helpful": "no"})
	last := a.call("explain", args{"item_id": id})
	if last.Confidence >= after.Confidence || last.Uses.Unhelpful != 2 {
		t.Errorf("after two unhelpful votes: %s", last.raw)
	}
	if r, failed := a.try("memory_feedback", args{"item_id": "no-such-item", "helpful": true}); !failed || r.Error.Kind != "not_found" {
		t.Errorf("feedback on nothing: %s", r.raw)
	}
	// A recall that shows it is a use of it.
	in.until(t, func() string {
		a.call("memory_search", args{"entity": "invoices"})
		if r := a.call("explain", args{"item_id": id}); r.Uses.Hits == 0 {
			return "no use is counted: " + r.raw
		}
		return ""
	})
}

// joinedRecalls lets an agent ask during a task and outside of one.
func joinedRecalls(t *testing.T, in *installation) {
	t.Helper()
	const namespace = "stories.joined"
	token, _ := in.token(t, namespace, "write")
	a := in.agent(t, token, "")
	publish := func(kind, data string) {
		in.run("publish", "--namespace", namespace, "--task", "task-1", "--session", "session-1", "--kind", kind, "--data", data)
	}
	id := a.call("memory_write", args{"content": "Customer Meyer is called before ten", "entity": "Meyer"}).MemoryID
	a.call("memory_search", args{"entity": "Meyer"}) // Nobody says for which task.
	publish("task_started", `{"task_type":"calls","goal":"Call Meyer"}`)
	in.until(t, func() string {
		if text, err := a.read("memory://working/task-1"); err != nil || !strings.Contains(text, "Call Meyer") {
			return fmt.Sprint("no working memory of the live task: ", text, err)
		}
		return ""
	})
	joined := a.call("memory_search", args{"entity": "Meyer", "task_id": "task-1", "session_id": "session-1"})
	if !joined.has(id) || joined.RecallID == "" {
		t.Fatalf("search: %s", joined.raw)
	}
	in.until(t, func() string {
		if n := in.sql("SELECT count() FROM trace_events FINAL WHERE namespace = '" + namespace + "' AND kind = 'recall_served'"); n != "2" {
			return n + " recalls are recorded, want 2"
		}
		return ""
	})
	publish("task_finished", `{"status":"success","confirmed_by":"user"}`)
	in.until(t, func() string {
		if got := in.sql("SELECT recalled, withheld, status FROM tasks FINAL WHERE namespace = '" + namespace + "' AND task_id = 'task-1' AND closed"); got != "['"+id+"']\tfalse\tsuccess" {
			return "the closed task is " + got
		}
		return ""
	})
	listed := parse[[]struct {
		TaskID string `json:"task_id"`
	}](t, in.run("tasks", "--namespace", namespace, "--json"))
	if len(listed) != 1 || listed[0].TaskID != "task-1" {
		t.Errorf("tasks: %+v, want task-1 alone", listed)
	}
	if _, err := a.read("memory://working/task-1"); err == nil {
		t.Error("the task is over and still has a working memory")
	}
}

func twoLanguages(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.languages", "write")
	a := in.agent(t, token, "")
	english := a.call("memory_write", args{"content": "Refunds over 500 euros must be approved by a manager", "memory_type": "procedure"}).MemoryID
	chinese := a.call("memory_write", args{"content": "客户王伟喜欢用微信联系，不接电话 🙂", "memory_type": "preference", "entity": "王伟"}).MemoryID
	for question, want := range map[string]string{
		"超过五百欧元的退款需要谁批准？":                                english,
		"who has to approve a large refund?":             english,
		"怎么联系王伟？":                                        chinese,
		"How does the customer 王伟 like to be contacted?": chinese,
	} {
		in.until(t, func() string {
			if r := a.call("memory_search", args{"query": question}); !r.has(want) {
				return question + ": " + r.raw
			}
			return ""
		})
	}
	if text, err := a.read("memory://item/" + chinese); err != nil || !strings.Contains(text, "客户王伟喜欢用微信联系，不接电话 🙂") {
		t.Errorf("the item: %s, %v", text, err)
	}
}

// proxied goes through the program that coding agents start.
func proxied(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.proxy", "write")
	a, said := in.stdio(t, "HINDSIGHT_TOKEN="+token, "HINDSIGHT_LOG_LEVEL=debug")
	listed, err := a.session.ListTools(t.Context(), nil)
	if err != nil || len(listed.Tools) != 8 {
		t.Fatalf("tools: %+v, %v", listed, err)
	}
	id := a.call("memory_write", args{"content": "The build needs 8 GB", "entity": "build"}).MemoryID
	if r := a.call("memory_search", args{"entity": "build"}); !r.has(id) {
		t.Errorf("search: %s", r.raw)
	}
	if text, err := a.read("memory://item/" + id); err != nil || !strings.Contains(text, "8 GB") {
		t.Errorf("item: %s, %v", text, err)
	}
	if err := a.session.Close(); err != nil {
		t.Errorf("the proxy did not end cleanly: %v\n%s", err, said)
	}
	// Byte by byte: whatever it logs, standard output is protocol.
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "mcp"), "--stdio")
	cmd.Env = append(slices.Clone(in.env), "HINDSIGHT_TOKEN="+token, "HINDSIGHT_LOG_LEVEL=debug")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("a session that ends with its input: %v", err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var message struct {
			Version string `json:"jsonrpc"`
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil || message.Version != "2.0" {
			t.Errorf("standard output has a line that is not protocol: %q", lines.Text())
		}
	}
}

// nativeWrites publishes a write as an agent's own event, beside its traces.
func nativeWrites(t *testing.T, in *installation) {
	t.Helper()
	token, _ := in.token(t, "stories.native", "read")
	a := in.agent(t, token, "")
	event := `{"id":"native-1","namespace":"stories.native","agent_id":"a","session_id":"s","task_id":"t","time":"2026-01-31T12:00:00Z","kind":"item_written","data":{"content":"Backups run at noon","entity":"backups"}}`
	publishRaw(t, in.nats, "hindsight.v1.trace.stories.native.item_written", []byte(event))
	in.until(t, func() string {
		if r := a.call("memory_search", args{"entity": "backups"}); len(r.Items) != 1 {
			return "the write is no item: " + r.raw
		}
		return ""
	})
}

// TestManyClientsWriteAtOnce lets 8 clients write 60 memories each: what was acknowledged is there, once.
func TestManyClientsWriteAtOnce(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 60
	in := newInstallation(t)
	in.start()
	var mu sync.Mutex
	acknowledged := map[string]string{} // content by id
	var refused []string
	var slowest time.Duration
	var all sync.WaitGroup
	began := time.Now()
	for c := range clients {
		a := in.agent(t, "", "")
		all.Go(func() {
			for n := range each {
				content := fmt.Sprintf("Client %d has seen that shelf %d holds %d boxes", c, n, n*n)
				sent := time.Now()
				res, err := a.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "memory_write", Arguments: args{"content": content, "entity": fmt.Sprintf("shelf %d/%d", c, n)}})
				took := time.Since(sent)
				mu.Lock()
				slowest = max(slowest, took)
				if err != nil || res.IsError {
					refused = append(refused, fmt.Sprint(err, res))
				} else if fields, ok := res.StructuredContent.(map[string]any); ok {
					acknowledged[fmt.Sprint(fields["memory_id"])] = content
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d writes of %d clients took %s, the slowest %s", clients*each, clients, time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond))
	if len(refused) > 0 || len(acknowledged) != clients*each {
		t.Errorf("%d acknowledged, %d refused, the first: %v", len(acknowledged), len(refused), refused[:min(1, len(refused))])
	}
	type held struct {
		ID      string `json:"id"`
		Content string `json:"content"`
		Version int    `json:"version"`
	}
	found := parse[[]held](t, in.run("memories", "--namespace", "default", "--json"))
	for _, h := range found {
		if acknowledged[h.ID] != h.Content || h.Version != 1 {
			t.Errorf("held: %+v, acknowledged as %q", h, acknowledged[h.ID])
		}
	}
	if len(found) != clients*each {
		t.Errorf("%d memories are held, want %d", len(found), clients*each)
	}
	if got := in.sql("SELECT count(), uniqExact(memory_id) FROM memories"); got != fmt.Sprintf("%d\t%[1]d", clients*each) {
		t.Errorf("rows and memories: %s", got)
	}
	in.until(t, func() string {
		if n := in.sql("SELECT uniqExact(item_id) FROM item_vectors"); n != itoa(clients*each) {
			return n + " are found by their meaning"
		}
		return ""
	})
	t.Logf("all are found by their meaning after %s", time.Since(began).Round(time.Millisecond))
	in.stop()
}

// TestStdioWithNothingRunning starts the proxy on a machine where nothing else was started.
func TestStdioWithNothingRunning(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	began := time.Now()
	a, said := in.stdio(t, "HINDSIGHT_LOG_LEVEL=debug")
	listed, err := a.session.ListTools(t.Context(), nil)
	if err != nil || len(listed.Tools) != 8 {
		t.Fatalf("tools: %+v, %v\n%s", listed, err, said)
	}
	t.Logf("initialized and listed within %s", time.Since(began).Round(time.Millisecond))
	for tool, arguments := range map[string]args{"retrieve_similar": {"current_context": "x"}, "memory_write": {"content": "x"}} {
		if r, failed := a.try(tool, arguments); !failed || !strings.Contains(r.Error.Message, "hindsight up") {
			t.Errorf("%s: %s", tool, r.raw)
		}
	}
	// Once it runs, the same session is served.
	in.env = append(in.env, noEmbedder)
	in.start()
	in.until(t, func() string {
		if r, failed := a.try("memory_write", args{"content": "The build needs 8 GB"}); failed {
			return r.raw
		}
		return ""
	})
	if err := a.session.Close(); err != nil {
		t.Errorf("the proxy did not end cleanly: %v\n%s", err, said)
	}
	in.stop()
}

// TestSwitchedOffAndControlGroup restarts one installation with other settings.
func TestSwitchedOffAndControlGroup(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	a := in.agent(t, "", "")
	call := args{"table": "orders"}
	snapshot := a.call("store_snapshot", args{
		"task_context": args{"task_type": "reporting", "input_summary": "Export all orders"}, "decision": args{"tool_selected": "export_table", "parameters": call},
		"outcome": args{"status": "failure", "error_type": "E42", "error_message": "range is missing"},
	}).SnapshotID
	fact := a.call("memory_write", args{"content": "The orders table holds E42 markers", "entity": "orders"}).MemoryID
	question := args{"current_context": "Export all orders, range is missing E42"}
	asked := func(a agent, session string) (similar, checked, facts reply) {
		similar = a.call("retrieve_similar", args{"current_context": question["current_context"], "session_id": session})
		checked = a.call("check_action", args{"tool": "export_table", "parameters": call, "session_id": session})
		facts = a.call("memory_search", args{"entity": "orders", "session_id": session})
		return similar, checked, facts
	}
	similar, checked, facts := asked(a, "s1")
	if !similar.has(snapshot) || !checked.has(snapshot) || !facts.has(fact) {
		t.Fatalf("switched on:\n%s\n%s\n%s", similar.raw, checked.raw, facts.raw)
	}
	if !strings.Contains(similar.Notice, "no embedding model") {
		t.Errorf("without an embedder: notice %q", similar.Notice)
	}
	in.stop()

	in.env = append(in.env, "HINDSIGHT_RECALL=off")
	in.start()
	similar, checked, facts = asked(in.agent(t, "", ""), "s1")
	for _, r := range []reply{similar, checked, facts} {
		if len(r.Items) != 0 || r.Known || r.Way != "off" {
			t.Errorf("switched off: %s", r.raw)
		}
	}
	in.stop()

	in.env = append(in.env, "HINDSIGHT_RECALL=on", "HINDSIGHT_CONTROL_SHARE=1")
	in.start()
	a = in.agent(t, "", "")
	similar, checked, facts = asked(a, "s2")
	if similar.has(snapshot) || checked.Known || checked.has(snapshot) || !facts.has(fact) {
		t.Errorf("control group:\n%s\n%s\n%s", similar.raw, checked.raw, facts.raw)
	}
	in.until(t, func() string {
		withheld := in.sql("SELECT countIf(JSONExtractBool(data, 'withheld')) FROM trace_events FINAL WHERE kind = 'recall_served' AND session_id = 's2'")
		if withheld != "2" {
			return withheld + " recalls are recorded as withheld, want those of the two questions with a lesson"
		}
		return ""
	})
	// Who names neither session nor task is in no group.
	if r := a.call("retrieve_similar", question); !r.has(snapshot) {
		t.Errorf("without a session: %s", r.raw)
	}
	in.stop()
}

// TestAnotherEmbeddingModelEndsTheProcess starts with the local model, then with the endpoint of another one.
func TestAnotherEmbeddingModelEndsTheProcess(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Input []string `json:"input"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		data := []any{}
		for i := range body.Input {
			data = append(data, args{"object": "embedding", "index": i, "embedding": []float64{1, float64(i), 0.5}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(args{"object": "list", "data": data})
	}))
	t.Cleanup(endpoint.Close)
	in := newInstallation(t)
	in.start()
	id := in.agent(t, "", "").call("memory_write", args{"content": "The build needs 8 GB"}).MemoryID
	in.until(t, func() string {
		if n := in.sql("SELECT count() FROM item_vectors WHERE item_id = '" + id + "'"); n != "1" {
			return "no vector yet"
		}
		return ""
	})
	in.stop()
	in.env = append(in.env, "HINDSIGHT_EMBEDDING_BASE_URL="+endpoint.URL+"/v1", "EMBEDDING_MODEL=other-model")
	r := in.try("", "up")
	if r.code != 1 || !strings.Contains(r.stderr, "the embedding model has changed") || !strings.Contains(r.stderr, "other-model") || !strings.Contains(r.stderr, "HINDSIGHT_EMBEDDER=local") {
		t.Errorf("another model: exit %d\n%s", r.code, r.stderr)
	}
	t.Logf("it said: %s", r.stderr[strings.LastIndex(strings.TrimSpace(r.stderr), "\n")+1:])
	// What it advises helps.
	in.env = append(in.env, "HINDSIGHT_EMBEDDER=local")
	in.start()
	if r := in.agent(t, "", "").call("memory_search", args{"query": "How much does the build need?"}); !r.has(id) || r.Notice != "" {
		t.Errorf("back with the local model: %s", r.raw)
	}
	in.stop()
}

// TestAModelThatTalksNonsense imports with a model endpoint whose every answer is garbage.
func TestAModelThatTalksNonsense(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(args{"choices": []any{args{"message": args{"role": "assistant", "content": "I am a teapot, short and stout."}, "finish_reason": "stop"}}})
	}))
	t.Cleanup(endpoint.Close)
	in := newInstallation(t, noEmbedder, "HINDSIGHT_LLM_BASE_URL="+endpoint.URL+"/v1", "REFLECTION_MODEL=teapot")
	in.start()
	in.run("import", "--namespace", "demo", "--wait", example(t))
	if got := in.sql(`SELECT count(), countIf(r.closed), countIf(r.fallback = 'model_answer_unusable'), countIf(r.reflected_by = 'evidence')
		FROM (SELECT task_id, revision FROM tasks FINAL WHERE namespace = 'demo' AND closed) AS t
		INNER JOIN (SELECT * FROM reflections FINAL) AS r ON r.task_id = t.task_id AND r.revision = t.revision`); got != "9\t9\t9\t9" {
		t.Errorf("tasks, reflected once closed, with the fallback named, by the evidence critic: %s, want 9 each", got)
	}
	if r := in.agent(t, parse[struct {
		Token string `json:"token"`
	}](t, in.run("token", "create", "--namespace", "demo", "--json")).Token, "").call("check_action", args{"tool": "refund_order", "parameters": args{"order_id": "1042", "amount": "twelve fifty"}}); !r.Known {
		t.Errorf("check_action after the evidence critic: %s", r.raw)
	}
	in.stop()
}
