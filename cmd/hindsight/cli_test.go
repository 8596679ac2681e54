package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// program is one of the separate programs, running.
type program struct {
	in   *installation
	name string
	cmd  *exec.Cmd
	log  *enginetest.Log
	done chan error
}

// startProgram runs a separate program against the installation's engines and waits until it is ready.
func (in *installation) startProgram(name string) *program {
	in.t.Helper()
	p := &program{in: in, name: name, cmd: exec.Command(filepath.Join(programs, name)), log: &enginetest.Log{}, done: make(chan error, 1)}
	port := freePorts(in.t, 1)[0]
	p.cmd.Env = append(slices.Clone(in.env), "HINDSIGHT_NATS_URL="+in.nats, "HINDSIGHT_CLICKHOUSE_URL="+in.http, "HINDSIGHT_HEALTH_PORT="+port)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	in.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	in.waitFor(func() error { return httpOK("http://127.0.0.1:" + port + "/readyz") })
	return p
}

func (p *program) stop() {
	p.in.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.in.t.Fatal(err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.in.t.Fatalf("%s did not end cleanly: %v\n%s", p.name, err, p.log)
		}
	case <-time.After(patience):
		p.in.t.Fatalf("%s did not end on SIGTERM\n%s", p.name, p.log)
	}
}

func TestEveryCommandAgainstARunningInstallation(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	in.start()
	in.run("import", "--namespace", "demo", "--wait", example(t))

	type step struct {
		Step            int            `json:"step"`
		Tool            string         `json:"tool"`
		Parameters      map[string]any `json:"parameters"`
		Status          string         `json:"status"`
		Result          *string        `json:"result"`
		ErrorType       string         `json:"error_type"`
		ErrorMessage    string         `json:"error_message"`
		ExecutionTimeMS *int64         `json:"execution_time_ms"`
	}
	type task struct {
		Namespace string `json:"namespace"`
		TaskID    string `json:"task_id"`
		GoalID    string `json:"goal_id"`
		SessionID string `json:"session_id"`
		TaskType  string `json:"task_type"`
		Goal      string `json:"goal"`
		Status    string `json:"status"`
		Certainty string `json:"certainty"`
		Steps     []step `json:"steps"`
	}
	tasks := parse[[]task](t, in.run("tasks", "--namespace", "demo", "--json"))
	if len(tasks) != 9 {
		t.Fatalf("%d tasks, want 9", len(tasks))
	}
	failed := parse[[]task](t, in.run("tasks", "--namespace", "demo", "--status", "failure", "--goal", "shop/orders/refund-1042", "--json"))
	if len(failed) != 1 {
		t.Fatalf("%d failed tasks of the goal, want 1", len(failed))
	}
	f := failed[0]
	if f.TaskType != "shop/orders" || f.SessionID != f.TaskID || f.Certainty != "confirmed" || !strings.HasPrefix(f.Goal, "Please refund order 1042") {
		t.Errorf("task = %+v", f)
	}
	if len(f.Steps) != 2 || f.Steps[1].Step != 2 || f.Steps[1].Tool != "refund_order" || f.Steps[1].Parameters["amount"] != "twelve fifty" ||
		f.Steps[1].Status != "failure" || f.Steps[1].ErrorType != "ValueError" || f.Steps[1].ErrorMessage == "" || f.Steps[1].Result == nil || f.Steps[1].ExecutionTimeMS == nil {
		t.Errorf("steps = %+v", f.Steps)
	}
	// The customer confirmed in the app: a message, not a decision of the agent.
	for _, task := range tasks {
		for _, s := range task.Steps {
			if s.Tool == "confirm_in_app" {
				t.Errorf("a call by the user is listed as a step of %s", task.TaskID)
			}
		}
	}

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"show", f.TaskID[:12]}, "refund_order"},
		{[]string{"show", "--json", f.TaskID}, `"kind": "task"`},
		{[]string{"sql", "--json", "SELECT count() AS n FROM tasks FINAL"}, `"n":`},
		{[]string{"sql", "SELECT 1 AS one"}, "one"},
		{[]string{"sql", "--json", "SELECT 1 WHERE 0"}, "[]"},
		{[]string{"config", "--json"}, "HINDSIGHT_TASK_IDLE"},
		{[]string{"doctor"}, "9 tasks closed"},
		{[]string{"doctor", "--json"}, `"result": "ok"`},
		{[]string{"deadletter", "list"}, "no dead letters"},
		{[]string{"version"}, "hindsight"},
		{[]string{"publish", "--namespace", "demo", "--task", "live-1", "--kind", "task_started", "--data", `{"goal":"try"}`}, "-"},
		{[]string{"tasks", "--namespace", "nobody", "--json"}, "[]"},
	} {
		if out := in.run(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("hindsight %s printed %q, want %q in it", strings.Join(c.args, " "), out, c.want)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nonsense"}, 2, "unknown command"},
		{[]string{"tasks", "--nonsense"}, 2, "unknown flag"},
		{[]string{"show"}, 2, "arg"},
		{[]string{"publish", "--task", "t"}, 2, "--kind"},
		{[]string{"publish", "--kind", "message"}, 2, "--task"},
		{[]string{"import", "--namespace", "", example(t)}, 2, "--namespace is empty"},
		{[]string{"tasks", "no-such-task"}, 1, "no task has the id"},
		{[]string{"sql", "KILL QUERY WHERE 1"}, 1, "read"},
		{[]string{"sql", "SELECT * FROM s3('http://127.0.0.1:9/b/x.csv', 'LineAsString')"}, 1, ""},
		{[]string{"sql", "SELECT * FROM remote('127.0.0.1:9', system.one)"}, 1, ""},
		{[]string{"sql", "CREATE TEMPORARY TABLE x (a Int8)"}, 1, "read"},
		{[]string{"tasks", "--status", "failed"}, 2, "success failure"},
		{[]string{"sql", "--json", "SELECT 1 FORMAT CSV"}, 2, "FORMAT"},
		{[]string{"deadletter", "list", "--limit", "0"}, 2, "--limit"},
		{[]string{"show", "ffffffffffff"}, 1, "nothing has the id"},
		{[]string{"sql", "DROP TABLE tasks"}, 1, "read"},
		{[]string{"sql", "SELECT 1 +"}, 1, "Syntax error"},
		{[]string{"sql", "SELEC 1"}, 1, "read"},
		{[]string{"import", "--format", "nonsense", example(t)}, 2, "format"},
		{[]string{"import", "--namespace", "Not A Namespace", example(t)}, 2, "namespace"},
		{[]string{"publish", "--task", "t", "--kind", "message", "--data", "{"}, 2, "JSON"},
		{[]string{"publish", "--task", "t", "--kind", "message", "--data", `{"role":"nobody"}`}, 2, "role"},
		{[]string{"deadletter", "replay"}, 2, "--all"},
		{[]string{"bench", "nonsense"}, 2, "invalid argument"},
	} {
		r := in.try("", c.args...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("hindsight %s: exit %d, stderr %q; want exit %d and %q", strings.Join(c.args, " "), r.code, r.stderr, c.code, c.want)
		}
	}
	in.stop()
}

// TestWaitIsForTheEventsOfThisImport imports more events of a task that is closed already: the wait must not be satisfied
// by the events that were there before.
func TestWaitIsForTheEventsOfThisImport(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	line := func(id, kind, data string) string {
		return `{"id":"` + id + `","namespace":"demo","agent_id":"a","session_id":"s","task_id":"t1","time":"2026-01-05T10:00:00Z","kind":"` + kind + `","data":` + data + "}\n"
	}
	var first, second strings.Builder
	for i := range 10 {
		first.WriteString(line("first-"+itoa(i), "message", `{"role":"user","content":"hello"}`))
	}
	first.WriteString(line("end", "task_finished", `{"status":"success","confirmed_by":"user"}`))
	for i := range 3 {
		second.WriteString(line("second-"+itoa(i), "message", `{"role":"user","content":"more"}`))
	}
	in.run("import", "--wait", "--namespace", "demo", in.writeFile("first.jsonl", first.String()))
	in.run("import", "--wait", "--namespace", "demo", in.writeFile("second.jsonl", second.String()))
	if got := in.sql("SELECT uniqExact(event_id) FROM trace_events WHERE task_id = 't1'"); got != "14" {
		t.Errorf("%s events are stored when the second import returns, want 14", got)
	}
	in.waitFor(func() error {
		if got := in.sql("SELECT events, closed FROM tasks FINAL WHERE task_id = 't1'"); got != "14\ttrue" {
			return errors.New("task is " + got)
		}
		return nil
	})
	in.stop()
}

// TestInterruptedInput ends commands that wait for standard input.
func TestInterruptedInput(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	pipe := filepath.Join(in.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"publish", "-"}, {"import", "-"}, {"import", pipe}} {
		cmd := in.command(t.Context(), args...)
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out := &enginetest.Log{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if args[0] == "publish" { // What it got is published at once, not when the input ends.
			if _, err := input.Write([]byte(`{"task_id":"t1","kind":"message","data":{"role":"user","content":"x"}}` + "\n")); err != nil {
				t.Fatal(err)
			}
			in.waitFor(func() error {
				if out.String() == "" {
					return errors.New("no id yet")
				}
				return nil
			})
		}
		if args[0] == "import" { // It must have installed its signal handler and be waiting: its files under /proc tell.
			in.waitFor(func() error { return catches(cmd.Process.Pid, syscall.SIGINT) })
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("hindsight %s: interrupted, but exit 0", strings.Join(args, " "))
			}
		case <-time.After(patience):
			t.Fatalf("hindsight %s does not end on an interrupt", strings.Join(args, " "))
		}
		_ = input.Close()
	}
	in.stop()
}

// TestFullDisk fills the disk under a running installation: it must say so, and take events again once there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	disk := filepath.Join(in.dir, "data")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("a small disk can't be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", disk).CombinedOutput(); err != nil {
			t.Errorf("unmount: %v: %s", err, out)
		}
	})
	in.start()
	in.run("import", "--namespace", "before", "--wait", example(t))
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for {
		if _, err := ballast.Write(block); err != nil {
			break // Full.
		}
	}
	_ = ballast.Close()
	in.waitFor(func() error { // Leases are renewed all the time, so the streams notice without any traffic.
		if err := httpOK(in.health + "/readyz"); err == nil {
			return errors.New("ready with a full disk")
		}
		return nil
	})
	if r := in.try("", "doctor"); r.code != 1 || !strings.Contains(r.stdout, "disk is full") {
		t.Errorf("doctor with a full disk: exit %d\n%s", r.code, r.stdout)
	}
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	in.waitFor(func() error { return httpOK(in.health + "/readyz") })
	in.run("import", "--namespace", "after", "--wait", example(t))
	if got := in.sql("SELECT countIf(namespace = 'before'), countIf(namespace = 'after') FROM tasks FINAL WHERE closed"); got != "9\t9" {
		t.Errorf("closed tasks before and after = %s, want 9 and 9", got)
	}
	in.stop()
}

// TestRejectedEventIsADeadLetter publishes past the command's own checks, as a foreign program would.
func TestRejectedEventIsADeadLetter(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	publishRaw(t, in.nats, "hindsight.v1.trace.demo.~.message", []byte("this is no event"))
	type letter struct {
		ID      string `json:"id"`
		Reason  string `json:"reason"`
		Payload string `json:"payload"`
	}
	var letters []letter
	in.waitFor(func() error {
		letters = parse[[]letter](t, in.run("deadletter", "list", "--json"))
		if len(letters) != 1 {
			return os.ErrNotExist
		}
		return nil
	})
	if letters[0].Reason != "malformed" || letters[0].Payload != "this is no event" {
		t.Errorf("letter = %+v", letters[0])
	}
	in.waitFor(func() error {
		if got := in.sql("SELECT reason FROM dead_letters FINAL"); got != "malformed" {
			return os.ErrNotExist
		}
		return nil
	})
	if out := in.run("deadletter", "replay", letters[0].ID); !strings.Contains(out, "replayed 1") {
		t.Errorf("replay printed %q", out)
	}
	// It is still no event, so it comes back as a letter.
	in.waitFor(func() error {
		if again := parse[[]letter](t, in.run("deadletter", "list", "--json")); len(again) != 1 || again[0].ID == letters[0].ID {
			return os.ErrNotExist
		}
		return nil
	})
	in.stop()
}

func TestWhatIsInUseIsRefusedByName(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	second := newInstallation(t, "HINDSIGHT_DATA_DIR="+filepath.Join(in.dir, "data"))
	r := second.try("", "up")
	if r.code != 1 || !strings.Contains(r.stderr, "hindsight up") || !strings.Contains(r.stderr, itoa(in.cmd.Process.Pid)) {
		t.Errorf("same data directory: exit %d, %s; want the holder's pid %d", r.code, r.stderr, in.cmd.Process.Pid)
	}
	var port string
	for _, entry := range in.env {
		if value, found := strings.CutPrefix(entry, "HINDSIGHT_CLICKHOUSE_PORT="); found {
			port = value
		}
	}
	third := newInstallation(t, "HINDSIGHT_CLICKHOUSE_PORT="+port)
	r = third.try("", "up")
	if r.code != 1 || !strings.Contains(r.stderr, "HINDSIGHT_CLICKHOUSE_PORT") {
		t.Errorf("same port: exit %d, %s; want the setting's name", r.code, r.stderr)
	}
	in.stop()
}

func TestWithoutAServerCommandsSayWhatToDo(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	for _, args := range [][]string{{"tasks"}, {"show", "0123456789"}, {"sql", "SELECT 1"}, {"deadletter", "list"}, {"import", example(t)}, {"publish", "--task", "t", "--kind", "message"}} {
		r := in.try("", args...)
		if r.code != 1 || !strings.Contains(r.stderr, "hindsight up") {
			t.Errorf("hindsight %s: exit %d, %q; want advice to run 'hindsight up'", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	if r := in.try("", "doctor"); r.code != 1 || !strings.Contains(r.stdout, "fail") {
		t.Errorf("doctor without servers: exit %d, %s", r.code, r.stdout)
	}
	got := parse[report](t, in.run("import", "--dry-run", "--json", example(t)))
	if got.Read != 9 || got.Mapped != 9 || got.Tasks != 9 {
		t.Errorf("dry run without a server: %+v", got)
	}
}

// catches reports, as nil, that a process has a handler for a signal.
func catches(pid int, signal syscall.Signal) error {
	raw, err := os.ReadFile("/proc/" + itoa(pid) + "/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if mask, found := strings.CutPrefix(line, "SigCgt:"); found {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err != nil {
				return err
			}
			if bits&(1<<(uint(signal)-1)) != 0 {
				return nil
			}
		}
	}
	return errors.New("no handler yet")
}
