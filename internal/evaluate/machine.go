package evaluate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Machine is what figures were measured on, without which they mean little.
type Machine struct {
	// Processor is its name, empty where the system does not tell; Cores are those that the program may use.
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	// MemoryBytes is the memory of the machine; 0 where the system does not tell.
	MemoryBytes int64 `json:"memory_bytes"`
	// System is the system with its architecture, and its kernel where it tells.
	System     string `json:"system"`
	Go         string `json:"go"`
	ClickHouse string `json:"clickhouse"`
	NATS       string `json:"nats"`
	// Load is how many processes wanted a core in the minute before, those that have nothing to do with it included; -1
	// where the system does not tell.
	Load float64 `json:"load"`
	// MeasuredOn is the day, in UTC.
	MeasuredOn string `json:"measured_on"`
}

// DescribeMachine looks at the machine, and starts the engines of the program for a moment to ask for their versions.
func DescribeMachine(ctx context.Context, executable string) (m Machine, err error) {
	m = Machine{
		Cores: runtime.GOMAXPROCS(0), Go: strings.TrimPrefix(runtime.Version(), "go"), System: runtime.GOOS + "/" + runtime.GOARCH, Load: -1,
		MeasuredOn: time.Now().UTC().Format(time.DateOnly), Processor: lineOf("/proc/cpuinfo", "model name"),
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(kernel))
	}
	if total, is := kilobytes(lineOf("/proc/meminfo", "MemTotal")); is {
		m.MemoryBytes = total
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(raw)); len(fields) > 0 {
			if load, err := strconv.ParseFloat(fields[0], 64); err == nil {
				m.Load = load
			}
		}
	}
	p, err := start(ctx, executable, "--engines-only")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.clickhouse+"/ping"); err != nil {
		return m, err
	}
	if m.ClickHouse, err = askClickHouse(ctx, p.clickhouse, "SELECT version()"); err != nil {
		return m, fmt.Errorf("ask for the version of ClickHouse: %w", err)
	}
	nc, err := nats.Connect(p.natsURL)
	if err != nil {
		return m, fmt.Errorf("ask for the version of NATS: %w", err)
	}
	defer nc.Close()
	m.NATS = nc.ConnectedServerVersion()
	return m, nil
}

// askClickHouse has a statement done, and gives what it answers.
func askClickHouse(ctx context.Context, address, statement string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(statement))
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", address, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // It was only read.
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", address, resp.Status, raw)
	}
	return strings.TrimSpace(string(raw)), nil
}

// lineOf is what stands behind a name and a colon in a file of /proc; empty where there is none.
func lineOf(path, name string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, is := strings.Cut(line, ":"); is && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes reads a size as /proc writes it, in bytes.
func kilobytes(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
	return n << 10, err == nil
}
