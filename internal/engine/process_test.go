package engine_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// What was acknowledged must be there after kill -9, in a database of one's
// own, in the default one and in a stream.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir)
	enginetest.Exec(t, c.ClickHouse, "CREATE DATABASE d")
	for _, table := range []string{"d.t", "default.t"} {
		enginetest.Exec(t, c.ClickHouse, "CREATE TABLE "+table+" (n UInt64) ENGINE = MergeTree ORDER BY n")
	}
	js := jetStream(t, c.NATS)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	const enough = 25
	var acked [3]atomic.Int64
	done := make(chan int, len(acked))
	for i, write := range []func(n int64) bool{
		func(n int64) bool { return tryExec(c.ClickHouse, fmt.Sprintf("INSERT INTO d.t VALUES (%d)", n)) },
		func(n int64) bool { return tryExec(c.ClickHouse, fmt.Sprintf("INSERT INTO default.t VALUES (%d)", n)) },
		func(int64) bool { _, err := js.Publish(t.Context(), "s", []byte("x")); return err == nil },
	} {
		go func() {
			for write(acked[i].Load() + 1) {
				if acked[i].Add(1) == enough {
					done <- i
				}
			}
			done <- i
		}()
	}
	for range acked { // all three are in the midst of writing
		<-done
	}
	c.kill(t)
	for range acked {
		<-done
	}
	again := startChild(t, dir)
	for i, table := range []string{"d.t", "default.t"} {
		count := strings.TrimSpace(enginetest.Exec(t, again.ClickHouse, "SELECT uniqExact(n) FROM "+table))
		t.Logf("%s: %d acknowledged, %s there", table, acked[i].Load(), count)
		atLeast(t, table, count, acked[i].Load())
	}
	stream, err := jetStream(t, again.NATS).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	messages := stream.CachedInfo().State.Msgs
	t.Logf("stream: %d acknowledged, %d there", acked[2].Load(), messages)
	atLeast(t, "stream", strconv.FormatUint(messages, 10), acked[2].Load())

	// And in order: the same after a clean stop.
	before := enginetest.Exec(t, again.ClickHouse, "SELECT count() FROM d.t")
	again.stop(t, syscall.SIGTERM)
	last := startChild(t, dir)
	if after := enginetest.Exec(t, last.ClickHouse, "SELECT count() FROM d.t"); after != before {
		t.Errorf("%s rows after a clean stop, want %s", after, before)
	}
	last.stop(t, os.Interrupt)
}

func atLeast(t *testing.T, what, got string, want int64) {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(got, &n); err != nil || n < want {
		t.Errorf("%s holds %s, want at least the %d acknowledged", what, got, want)
	}
}

func tryExec(serverURL, sql string) bool {
	resp, err := client.Post(serverURL, "text/plain", strings.NewReader(sql))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func jetStream(t *testing.T, natsURL string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(natsURL, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// The library installs signal handlers, prints, reads configuration from the
// working and home directories and follows the machine's time zone and
// locale, unless it is kept from it.
func TestProcessStaysItsOwn(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := t.TempDir()
	c := startChild(t, dir, "HOME="+home, "TZ=Asia/Tokyo", "LANG=de_DE.UTF-8", "LC_ALL=de_DE.UTF-8")
	if !c.Recovered {
		t.Error("a nil dereference did not become a panic")
	}
	got := enginetest.Exec(t, c.ClickHouse, "SELECT timezone(), serverTimezone(), toString(toDateTime(0)), toString(1.5) FORMAT TSV")
	if want := strings.Repeat("UTC\t", 2) + "1970-01-01 00:00:00\t1.5\n"; got != want {
		t.Errorf("time zone and locale: %q, want %q", got, want)
	}
	for _, sql := range []string{"SELECT throwIf(1)", "SELEC", "SELECT 1 INTO OUTFILE 'x.tsv'", "SELECT * FROM missing", "INSERT INTO FUNCTION file('x.tsv') SELECT 1", "SELECT * FROM numbers(3) FORMAT Pretty"} {
		ask(t, c.ClickHouse, sql, nil, "")
	}
	c.stop(t, syscall.SIGHUP)
	for _, d := range []string{c.cmd.Dir, home} {
		entries, err := os.ReadDir(d)
		if err != nil || len(entries) != 0 {
			t.Errorf("%s holds %v, %v; want nothing", d, entries, err)
		}
	}
	if c.stderr.Len() != 0 {
		t.Logf("standard error: %s", c.stderr)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir)
	_, err := engine.LockDataDir(dir)
	if !errors.Is(err, engine.ErrLocked) {
		t.Fatalf("LockDataDir = %v, want ErrLocked", err)
	}
	for _, want := range []string{fmt.Sprintf("process %d", c.cmd.Process.Pid), os.Args[0], "HINDSIGHT_DATA_DIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message does not say %q: %v", want, err)
		}
	}
	c.kill(t)
	lock, err := engine.LockDataDir(dir)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Errorf("Unlock again: %v", err)
	}
}

// The figure is for the reader: it says what an idle product costs.
func TestMemoryAtRest(t *testing.T) {
	t.Parallel()
	c := startChild(t, t.TempDir())
	enginetest.Exec(t, c.ClickHouse, "CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
	ask(t, c.ClickHouse, "INSERT INTO t SELECT number, toString(number) FROM numbers(100000)", nil, "")
	ask(t, c.ClickHouse, "SELECT uniq(s) FROM t", nil, "")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS", "RssAnon", "RssFile", "Threads":
			t.Logf("%s: %s", name, strings.TrimSpace(value))
		}
		if name == "VmRSS" {
			var kib int
			if _, err := fmt.Sscan(value, &kib); err != nil || kib > 600<<10 {
				t.Errorf("%d KiB resident, want less than 600 MiB", kib)
			}
		}
	}
	c.stop(t, syscall.SIGTERM)
}

func TestStopEndsWhatRuns(t *testing.T) {
	t.Parallel()
	c := startChild(t, t.TempDir(), childGrace+"=500ms")
	failed := make(chan string, 1)
	go func() {
		resp, err := client.Post(c.ClickHouse+"/?"+url.Values{"query": {"SELECT max(sipHash64(number)) FROM numbers(1000000000000)"}}.Encode(), "", nil)
		if err == nil {
			_ = resp.Body.Close()
			failed <- resp.Status
			return
		}
		failed <- err.Error()
	}()
	waitFor(t, "the statement to run", func() bool {
		return strings.TrimSpace(enginetest.Exec(t, c.ClickHouse, "SELECT count() FROM system.processes WHERE query LIKE '%1000000000000%' AND query NOT LIKE '%processes%'")) == "1"
	})
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil || !strings.Contains(c.stderr.String(), "statements were killed") {
		t.Errorf("child: %v, %s; want it to say that statements were killed", err, c.stderr)
	}
	if got := <-failed; strings.HasPrefix(got, "200") {
		t.Errorf("the statement ended with %s, want a failure", got)
	}
}

// waitFor polls a condition that takes a while.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}
