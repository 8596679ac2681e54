package main_test

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
)

// publishRaw sends bytes to a subject as any NATS client could.
func publishRaw(t *testing.T, url, subject string, data []byte) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(subject, data); err != nil {
		t.Fatal(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
