package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

// alone fails the test when two are inside at once.
type alone struct {
	inside atomic.Int32
	fences sync.Map // every fence seen, to find one used twice
	last   atomic.Uint64
}

// enter reports the fence, and must be followed by leave.
func (a *alone) enter(t *testing.T, fence uint64) {
	t.Helper()
	if n := a.inside.Add(1); n != 1 {
		t.Errorf("%d holders at once", n)
	}
	if _, twice := a.fences.LoadOrStore(fence, true); twice {
		t.Errorf("fence %d was given twice", fence)
	}
	if before := a.last.Swap(fence); before >= fence {
		t.Errorf("fence %d after fence %d, want it to grow", fence, before)
	}
}

func (a *alone) leave() { a.inside.Add(-1) }

// leader is a RunLeased in the background that enters and stays until its
// context ends.
func leader(t *testing.T, conn *bus.Conn, holder string, ttl time.Duration, a *alone) (entered chan uint64, causes chan error, stop func()) {
	t.Helper()
	entered, causes = make(chan uint64, 100), make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- conn.Lead(ctx, "job", holder, ttl, func(ctx context.Context, fence uint64) error {
			a.enter(t, fence)
			entered <- fence
			<-ctx.Done()
			a.leave()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(t, "Lead returns", done); err != nil {
			t.Errorf("Lead = %v, want nil when it was cancelled", err)
		}
	})
	t.Cleanup(stop)
	return entered, causes, stop
}

func TestManyContendersNeverOverlap(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	var (
		a     alone
		turns atomic.Int32
		wg    sync.WaitGroup
	)
	const holders, wanted = 5, 8
	for i := range holders {
		conn := s.connect(t)
		wg.Go(func() {
			for range wanted {
				err := conn.Lead(t.Context(), "job", fmt.Sprint("holder-", i), 10*time.Second, func(_ context.Context, fence uint64) error {
					a.enter(t, fence)
					defer a.leave()
					turns.Add(1)
					return nil
				})
				if err != nil {
					t.Errorf("Lead = %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := turns.Load(); got != holders*wanted {
		t.Errorf("%d turns, want %d", got, holders*wanted)
	}
}

func TestKilledHolderIsSucceededAfterTTL(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	const ttl = time.Second
	killed, err := conn.Acquire(t.Context(), "job", "killed", ttl) // and never renewed
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	next, err := s.connect(t).Acquire(t.Context(), "job", "next", ttl)
	if err != nil {
		t.Fatalf("Acquire = %v, want the lease of a holder that is silent", err)
	}
	if waited := time.Since(began); waited < ttl {
		t.Errorf("taken over after %s, want not before %s", waited, ttl)
	}
	if next.Fence() <= killed.Fence() {
		t.Errorf("fence %d after %d, want it to grow", next.Fence(), killed.Fence())
	}
	if err := killed.Renew(t.Context()); !errors.Is(err, bus.ErrLost) || !strings.Contains(err.Error(), "next") {
		t.Errorf("Renew of the killed = %v, want ErrLost naming the new holder", err)
	}
	if err := killed.Release(t.Context()); err != nil {
		t.Errorf("Release of what is lost = %v, want nil", err)
	}
	if err := next.Renew(t.Context()); err != nil {
		t.Errorf("Renew = %v, want the late release to have changed nothing", err)
	}
}

func TestSameHolderTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	before, err := conn.Acquire(t.Context(), "job", "host-1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.connect(t).Acquire(t.Context(), "job", "host-1", time.Hour)
	if err != nil {
		t.Fatalf("Acquire under the same name = %v, want the lease at once", err)
	}
	if after.Fence() <= before.Fence() {
		t.Errorf("fence %d after %d, want it to grow", after.Fence(), before.Fence())
	}
	if err := before.Renew(t.Context()); !errors.Is(err, bus.ErrLost) {
		t.Errorf("Renew of the former = %v, want ErrLost", err)
	}
}

func TestLivingHolderIsNamed(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	var a alone
	const ttl = time.Second
	entered, causes, _ := leader(t, conn, "alive", ttl, &a)
	receive(t, "leader leads", entered)
	other := s.connect(t)
	if _, err := other.Acquire(t.Context(), "job", "other", time.Second); !errors.Is(err, bus.ErrHeld) || !strings.Contains(err.Error(), "alive") {
		t.Errorf("Acquire = %v, want ErrHeld naming the holder", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*ttl/2)
	defer cancel()
	err := other.Lead(ctx, "job", "other", time.Second, func(context.Context, uint64) error {
		t.Error("led beside a living holder")
		return nil
	})
	if !errors.Is(err, bus.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lead = %v, want ErrHeld and DeadlineExceeded", err)
	}
	select {
	case cause := <-causes:
		t.Errorf("the holder's context ended (%v), want it to renew the lease", cause)
	default:
	}
}

func TestReleaseHandsOver(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	var a alone
	const ttl = time.Hour // waiting for it would exceed every patience
	entered, _, stop := leader(t, conn, "first", ttl, &a)
	receive(t, "first leads", entered)
	second, _, _ := leader(t, s.connect(t), "second", ttl, &a)
	stop()
	receive(t, "second leads", second)
}

func TestFailedWorkIsTriedAgain(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	var fences []uint64
	err := conn.Lead(t.Context(), "job", "a", time.Hour, func(_ context.Context, fence uint64) error {
		fences = append(fences, fence)
		if len(fences) == 1 {
			return errBroken
		}
		return nil
	})
	if err != nil || len(fences) != 2 || fences[1] <= fences[0] {
		t.Errorf("Lead = %v, runs under the fences %v, want nil after two runs", err, fences)
	}
	// Cancelled while it waits to try again, having given the lease back.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = conn.Lead(ctx, "job", "a", time.Hour, func(context.Context, uint64) error {
		time.AfterFunc(50*time.Millisecond, cancel)
		return errBroken
	})
	if err != nil {
		t.Errorf("Lead = %v, want nil when it was cancelled", err)
	}
	if _, err := s.connect(t).Acquire(t.Context(), "job", "b", time.Hour); err != nil {
		t.Errorf("Acquire by another = %v, want the lease at once", err)
	}
}

func TestLeadOnClosedConnection(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	conn := s.connect(t)
	conn.Close()
	if err := conn.Lead(t.Context(), "job", "a", time.Second, func(context.Context, uint64) error { return nil }); err == nil {
		t.Error("Lead = nil on a closed connection, want an error")
	}
}

// line is a way to a server that can be cut without either end being told, as
// when a machine is suspended.
type line struct {
	listener net.Listener
	cut      atomic.Bool
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			closeBoth := func() { _ = near.Close(); _ = far.Close() }
			context.AfterFunc(ctx, closeBoth)
			wg.Go(func() { defer closeBoth(); l.carry(far, near) })
			wg.Go(func() { defer closeBoth(); l.carry(near, far) })
		}
	})
	return l
}

// carry copies until an end closes; what comes while the line is cut is lost,
// and so is the connection, silently.
func (l *line) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.cut.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestCutOffHolderStopsBeforeAnotherStarts(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	way := newLine(t, strings.TrimPrefix(s.current.URL(), "nats://"))
	conn, err := bus.Connect(t.Context(), bus.Options{URL: "nats://" + way.listener.Addr().String(), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	t.Cleanup(func() { way.cut.Store(false) }) // or closing would wait for its timeout
	var a alone
	const ttl = time.Second
	entered, causes, _ := leader(t, conn, "cut-off", ttl, &a)
	receive(t, "first leads", entered)
	second, _, _ := leader(t, s.connect(t), "second", ttl, &a)
	way.cut.Store(true)
	receive(t, "second leads", second) // alone checks that the first had left
	if cause := receive(t, "the first's context ends", causes); !errors.Is(cause, bus.ErrLost) {
		t.Errorf("cause %v, want ErrLost", cause)
	}
}

func TestLeaseOutlivesRestartOfServer(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	var a alone
	const ttl = patience // a restart is shorter
	entered, causes, _ := leader(t, conn, "first", ttl, &a)
	receive(t, "first leads", entered)
	second, _, _ := leader(t, s.connect(t), "second", ttl, &a)
	s.stop(t)
	s.start(t)
	third := s.connect(t)
	_, err := third.Acquire(short(t), "job", "third", ttl)
	if !errors.Is(err, bus.ErrHeld) || !strings.Contains(err.Error(), "first") {
		t.Errorf("Acquire after the restart = %v, want ErrHeld by first", err)
	}
	select {
	case cause := <-causes:
		t.Errorf("the holder's context ended (%v) although the lease was renewable in time", cause)
	case <-second:
		t.Error("another led meanwhile")
	default:
	}
}

func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestHolderStopsWhenServerStaysAway(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	var a alone
	entered, causes, _ := leader(t, conn, "first", 500*time.Millisecond, &a)
	fence := receive(t, "first leads", entered)
	s.stop(t)
	if cause := receive(t, "its context ends", causes); !errors.Is(cause, bus.ErrLost) {
		t.Errorf("cause %v, want ErrLost", cause)
	}
	s.start(t)
	if again := receive(t, "first leads again", entered); again <= fence {
		t.Errorf("fence %d after %d, want it to grow", again, fence)
	}
}

func TestFenceGrowsThoughServerForgot(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	before, err := conn.Acquire(t.Context(), "job", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), "hindsight_state"); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := before.Renew(t.Context()); !errors.Is(err, bus.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	after, err := conn.Acquire(t.Context(), "job", "b", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if after.Fence() <= before.Fence() {
		t.Errorf("fence %d after %d, want it to grow", after.Fence(), before.Fence())
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	ctx := t.Context()
	first, err := conn.Acquire(ctx, "job", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got := first.Data(); got != nil {
		t.Errorf("Data of a new lease = %s, want none", got)
	}
	for _, bad := range []json.RawMessage{nil, json.RawMessage(`{`), json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)} {
		if err := first.Commit(ctx, bad); err == nil || errors.Is(err, bus.ErrLost) {
			t.Errorf("Commit of %d bytes that will not do = %v, want an error about the data", len(bad), err)
		}
	}
	if err := first.Commit(ctx, json.RawMessage(`{"run":"r1"}`)); err != nil {
		t.Fatal(err)
	}
	if err := first.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := s.connect(t).Acquire(ctx, "job", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(ctx, json.RawMessage(`{"run":"late"}`)); !errors.Is(err, bus.ErrLost) {
		t.Errorf("Commit under a lost lease = %v, want ErrLost", err)
	}
	if got := string(second.Data()); got != `{"run":"r1"}` {
		t.Errorf("Data = %s, want what was committed", got)
	}
	if err := second.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(ctx, json.RawMessage(`1`)); !errors.Is(err, bus.ErrLost) {
		t.Errorf("Commit after Release = %v, want ErrLost", err)
	}
	third, err := conn.Acquire(ctx, "job", "c", time.Hour)
	if err != nil {
		t.Fatalf("Acquire after Release = %v, want the lease at once", err)
	}
	if got := string(third.Data()); got != `{"run":"r1"}` {
		t.Errorf("Data = %s, want it to outlive the release", got)
	}
}

func TestCommitWhileRenewing(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	const commits = 50
	err := conn.RunLeased(t.Context(), "job", "a", 200*time.Millisecond, func(ctx context.Context, lease *bus.Lease) error {
		for i := range commits {
			if err := lease.Commit(ctx, json.RawMessage(strconv.Itoa(i))); err != nil {
				return err
			}
			if err := lease.Renew(ctx); err != nil {
				return err
			}
		}
		if got := string(lease.Data()); got != strconv.Itoa(commits-1) {
			t.Errorf("Data = %s, want the last commit", got)
		}
		return nil
	})
	if err != nil {
		t.Errorf("RunLeased = %v", err)
	}
}

func TestAcquireRefuses(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	for name, args := range map[string]struct {
		key, holder string
		ttl         time.Duration
	}{
		"no key":    {"", "a", time.Second},
		"no holder": {"job", "", time.Second},
		"no ttl":    {"job", "a", 0},
		"bad key":   {"a key", "a", time.Second},
	} {
		if _, err := conn.Acquire(t.Context(), args.key, args.holder, args.ttl); err == nil {
			t.Errorf("%s: Acquire = nil, want an error", name)
		}
		run := func(context.Context, uint64) error { return nil }
		if err := conn.Lead(t.Context(), args.key, args.holder, args.ttl, run); err == nil {
			t.Errorf("%s: Lead = nil, want an error", name)
		}
	}
}
