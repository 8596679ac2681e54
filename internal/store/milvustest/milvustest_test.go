package milvustest_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func reachable(ctx context.Context, address string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestAKilledServerComesBackAtTheSamePlace(t *testing.T) {
	s := milvustest.Start(t)
	address := s.Address()
	if err := reachable(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	if err := reachable(t.Context(), address); err == nil {
		t.Error("a killed server listens")
	}
	s.Restart(t)
	if err := reachable(t.Context(), s.Address()); err != nil || s.Address() != address {
		t.Errorf("after the restart %s (before %s): %v", s.Address(), address, err)
	}
}

func TestTheSharedServerIsOne(t *testing.T) {
	t.Setenv("HINDSIGHT_TEST_MILVUS_ADDR", "")
	first := milvustest.Address(t)
	if second := milvustest.Address(t); second != first {
		t.Errorf("two servers: %s and %s", first, second)
	}
	if err := reachable(t.Context(), first); err != nil {
		t.Error(err)
	}
	if err := milvustest.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := reachable(t.Context(), first); err == nil {
		t.Error("a stopped server listens")
	}
}
