package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// ask sends one request to a process under test.
func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// readiness is the answer of /readyz.
func readiness(t *testing.T, url string) (int, map[string]string) {
	t.Helper()
	status, body := ask(t, http.MethodGet, url+"/readyz")
	parts := map[string]string{}
	if err := json.Unmarshal([]byte(body), &parts); err != nil {
		return status, map[string]string{"error": body}
	}
	return status, parts
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serveHealth runs Health until the test ends.
func serveHealth(t *testing.T, registry *prometheus.Registry, r *service.Readiness) (url string) {
	t.Helper()
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Health(ctx, ln, registry, r, logger(t)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Health = %v", err)
		}
		if _, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", ln.Addr().String()); err == nil {
			t.Error("the port is still open")
		}
	})
	return "http://" + ln.Addr().String()
}

func works(context.Context) error { return nil }

func TestHealth(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "hindsight_test_total", Help: "A count."})
	registry.MustRegister(count)
	r := &service.Readiness{}
	url := serveHealth(t, registry, r)
	if status, parts := readiness(t, url); status != http.StatusServiceUnavailable || !strings.Contains(parts["start"], "waiting for the servers") {
		t.Errorf("while starting: %d %v", status, parts)
	}
	if status, body := ask(t, http.MethodGet, url+"/healthz"); status != http.StatusOK || !strings.Contains(body, "ok") {
		t.Errorf("healthz while starting: %d %s", status, body)
	}
	broken := func(context.Context) error { return errors.New("no answer from 127.0.0.1:4222") }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	patient := func(ctx context.Context) error { return ctx.Err() }
	for _, test := range []struct {
		name   string
		probes []service.Probe
		status int
		broken []string
	}{
		{"fine", []service.Probe{{Name: "nats", Check: works}, {Name: "clickhouse", Check: works}}, http.StatusOK, nil},
		{"broken", []service.Probe{{Name: "nats", Check: broken}, {Name: "clickhouse", Check: works}}, http.StatusServiceUnavailable, []string{"nats"}},
		{"hangs", []service.Probe{{Name: "nats", Check: hangs}, {Name: "clickhouse", Check: patient}}, http.StatusServiceUnavailable, []string{"nats"}},
		{"fine again", []service.Probe{{Name: "nats", Check: works}, {Name: "clickhouse", Check: works}}, http.StatusOK, nil},
	} {
		r.Set(test.probes)
		status, parts := readiness(t, url)
		if status != test.status || len(parts) != len(test.probes) {
			t.Errorf("%s: %d %v", test.name, status, parts)
		}
		var bad []string
		for name, state := range parts {
			if state != "ok" {
				bad = append(bad, name)
			}
		}
		if strings.Join(bad, " ") != strings.Join(test.broken, " ") {
			t.Errorf("%s: broken %q, want %q: %v", test.name, bad, test.broken, parts)
		}
	}
	if status, body := ask(t, http.MethodGet, url+"/metrics"); status != http.StatusOK || !strings.Contains(body, "hindsight_test_total 0") {
		t.Errorf("metrics: %d %s", status, body)
	}
	for path, want := range map[string]int{"/": http.StatusNotFound, "/healthz/x": http.StatusNotFound} {
		if status, _ := ask(t, http.MethodGet, url+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	if status, _ := ask(t, http.MethodPost, url+"/readyz"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want %d", status, http.StatusMethodNotAllowed)
	}
}

// TestReadinessOfTheRealParts breaks one of them at a time.
func TestReadinessOfTheRealParts(t *testing.T) {
	t.Parallel()
	env := environment(t)
	var toStore, toBroker *enginetest.Proxy
	toStore, env["HINDSIGHT_CLICKHOUSE_URL"] = inFrontOf(t, env["HINDSIGHT_CLICKHOUSE_URL"])
	toBroker, env["HINDSIGHT_NATS_URL"] = inFrontOf(t, env["HINDSIGHT_NATS_URL"])
	p := open(t, env, "one")
	r := &service.Readiness{}
	url := serveHealth(t, p.Registry, r)
	r.Set(p.Probes())
	state := func() string {
		status, parts := readiness(t, url)
		out := []string{strconv.Itoa(status)}
		for _, name := range []string{"nats", "clickhouse"} {
			if parts[name] != "ok" {
				out = append(out, name)
			}
		}
		return strings.Join(out, " ")
	}
	if got := state(); got != "200" {
		t.Errorf("with both: %s", got)
	}
	for _, test := range []struct {
		between *enginetest.Proxy
		now     enginetest.Weather
		want    string
	}{
		{toStore, enginetest.Refused, "503 clickhouse"},
		{toStore, enginetest.Silent, "503 clickhouse"},
		{toStore, enginetest.Fine, "200"},
		{toBroker, enginetest.Refused, "503 nats"},
		{toBroker, enginetest.Fine, "200"},
	} {
		test.between.Turn(test.now)
		eventually(t, test.want, func() bool { return state() == test.want })
	}
}

// TestReadinessOfAFullStream is what a load balancer in front of publishers must see.
func TestReadinessOfAFullStream(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_TRACES_MAX_BYTES"] = strconv.Itoa(1 << 20)
	p := open(t, env, "one")
	r := &service.Readiness{}
	url := serveHealth(t, p.Registry, r)
	r.Set(p.Probes())
	if status, parts := readiness(t, url); status != http.StatusOK {
		t.Errorf("with an empty stream: %d %v", status, parts)
	}
	agent := publisher(t, env)
	var err error
	for i := 0; err == nil; i++ {
		_, err = agent.Publish(t.Context(), messageOf(t, started(fmt.Sprint("task", i))))
	}
	if !errors.Is(err, bus.ErrFull) {
		t.Fatal(err)
	}
	if status, parts := readiness(t, url); status != http.StatusServiceUnavailable || !strings.Contains(parts["nats"], bus.StreamTraces) {
		t.Errorf("with a full stream: %d %v", status, parts)
	}
}

// freePort finds a port that nobody has at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	ln := listen(t)
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // It listens on TCP.
}

func TestRun(t *testing.T) {
	t.Parallel()
	env := environment(t)
	port := freePort(t)
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- service.Run(ctx, service.Options{
			Config: load(t, env), Name: "test", Holder: service.UniqueHolder(), Port: port, PortSetting: "HINDSIGHT_HEALTH_PORT",
			Logger: logger(t), Ready: func() { close(ready) },
		}, service.Ingest)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(stop)
	<-ready
	agent := publisher(t, env)
	publish(t, agent, tasks("task", 3)...)
	eventually(t, "the metrics of three closed tasks", func() bool {
		_, body := ask(t, http.MethodGet, url+"/metrics")
		return strings.Contains(body, `hindsight_tasks_closed_total{cause="finished"} 3`)
	})
	_, body := ask(t, http.MethodGet, url+"/metrics")
	for _, name := range []string{
		`hindsight_ingest_events_total{kind="task_started"} 3`, "hindsight_ingest_unknown_kinds_total 0", "hindsight_tasks_open 0",
		"hindsight_sweep_seconds_count", "hindsight_bus_", "go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(body, name) {
			t.Errorf("metrics have no %s", name)
		}
	}
	if status, parts := readiness(t, url); status != http.StatusOK || !maps.Equal(parts, map[string]string{"nats": "ok", "clickhouse": "ok"}) {
		t.Errorf("ready: %d %v", status, parts)
	}
	stop()
	if status, body := ask(t, http.MethodGet, url+"/healthz"); status != 0 {
		t.Errorf("health answers after the end: %d %s", status, body)
	}
}

// TestRunWaitsForItsServers and says so, until it is told to stop, which is no failure.
func TestRunWaitsForItsServers(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_NATS_URL"] = "nats://127.0.0.1:1"
	port := freePort(t)
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- service.Run(ctx, service.Options{
			Config: load(t, env), Name: "test", Holder: "one", Port: port, PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
			Ready: func() { t.Error("ready without a broker") },
		}, service.Ingest)
	}()
	eventually(t, "health", func() bool { status, _ := ask(t, http.MethodGet, url+"/healthz"); return status == http.StatusOK })
	eventually(t, "what it waits for", func() bool {
		status, parts := readiness(t, url)
		return status == http.StatusServiceUnavailable && strings.Contains(parts["start"], "NATS at nats://127.0.0.1:1")
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestRunSaysWhatItWaitsFor in its log and to whoever asks whether it is ready, without the password.
func TestRunSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	env := environment(t)
	between, address := inFrontOf(t, env["HINDSIGHT_CLICKHOUSE_URL"])
	host := strings.TrimPrefix(address, "http://")
	env["HINDSIGHT_CLICKHOUSE_URL"] = "http://default:hush@" + host
	between.Turn(enginetest.Refused)
	port := freePort(t)
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	var out enginetest.Log
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- service.Run(ctx, service.Options{
			Config: load(t, env), Name: "test", Holder: "one", Port: port, PortSetting: "HINDSIGHT_HEALTH_PORT",
			Logger: slog.New(slog.NewTextHandler(&out, nil)), Ready: func() { t.Error("ready without a record") },
		}, service.Ingest)
	}()
	eventually(t, "what it waits for", func() bool {
		_, parts := readiness(t, url)
		return strings.Contains(parts["start"], "ClickHouse at") && strings.Contains(parts["start"], host)
	})
	eventually(t, "further attempts", func() bool { return between.Attempts() > 2 })
	_, parts := readiness(t, url)
	if log := out.String(); strings.Count(log, "ClickHouse does not answer yet") != 1 || !strings.Contains(log, host) || strings.Contains(log+parts["start"], "hush") {
		t.Errorf("ready: %v, log: %s", parts, log)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestRunEndsWhenWaitingIsNoUse since no time heals wrong credentials.
func TestRunEndsWhenWaitingIsNoUse(t *testing.T) {
	t.Parallel()
	env := environment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-ClickHouse-Exception-Code", "516")
		http.Error(w, "Code: 516. DB::Exception: default: Authentication failed (AUTHENTICATION_FAILED)", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	env["HINDSIGHT_CLICKHOUSE_URL"] = server.URL
	err := service.Run(t.Context(), service.Options{
		Config: load(t, env), Name: "test", Holder: "one", Port: freePort(t), PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
	}, service.Ingest)
	if !errors.Is(err, store.ErrDenied) {
		t.Errorf("Run = %v, want %v", err, store.ErrDenied)
	}
}

func TestAServiceThatFailsEndsTheOthers(t *testing.T) {
	t.Parallel()
	env := environment(t)
	broken := errors.New("it broke")
	err := service.Run(t.Context(), service.Options{
		Config: load(t, env), Name: "test", Holder: "one", Port: freePort(t), PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
	}, service.Ingest, func(context.Context, *service.Parts) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("Run = %v, want %v", err, broken)
	}
}

func TestAPortInUse(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	defer func() { _ = ln.Close() }()
	port := ln.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // It listens on TCP.
	err := service.Run(t.Context(), service.Options{
		Config: &config.Config{Bind: "127.0.0.1"}, Port: port, PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
	})
	if err == nil || !strings.Contains(err.Error(), "HINDSIGHT_HEALTH_PORT") || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("Run = %v, want the port and its setting", err)
	}
}

// TestABadBind is a mistake in another setting than the port.
func TestABadBind(t *testing.T) {
	t.Parallel()
	for _, bind := range []string{"203.0.113.1", "not an address"} {
		err := service.Run(t.Context(), service.Options{
			Config: &config.Config{Bind: bind}, Port: freePort(t), PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
		})
		if err == nil || !strings.Contains(err.Error(), "HINDSIGHT_BIND") || strings.Contains(err.Error(), "HINDSIGHT_HEALTH_PORT") {
			t.Errorf("%s: Run = %v, want HINDSIGHT_BIND alone to be blamed", bind, err)
		}
	}
}

func TestUniqueHolder(t *testing.T) {
	t.Parallel()
	if a, b := service.UniqueHolder(), service.UniqueHolder(); a == b {
		t.Errorf("two holders have the name %s", a)
	}
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "": 3} {
		var out bytes.Buffer
		log := service.NewLogger(&config.Config{LogLevel: level}, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w", slog.String("key", "v"))
		log.Error("e")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != want {
			t.Errorf("level %q: %d lines, want %d", level, len(lines), want)
		}
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("to a program the log is no JSON: %s", line)
			}
		}
	}
}
