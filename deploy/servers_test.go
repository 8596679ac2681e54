package deploy_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// natsServer runs a server on deploy/nats.conf as Compose would give it, on free ports and with its data in a folder of the
// test. password is what .env holds.
func natsServer(t *testing.T, password string) *server.Server {
	t.Helper()
	given := passwords()
	given["HINDSIGHT_NATS_PASSWORD"] = password
	service := mustCompose(t, given).Services["nats"]
	for name, value := range environmentOf(service) {
		t.Setenv(name, value)
	}
	options, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if mount := service.Volumes[0].Target; options.StoreDir != mount {
		t.Errorf("the streams are kept in %s, and the volume is %s", options.StoreDir, mount)
	}
	if options.Port != int(service.Ports[0].Target) || options.Host != "0.0.0.0" {
		t.Errorf("it listens on %s:%d, and Compose publishes %d", options.Host, options.Port, service.Ports[0].Target)
	}
	check, err := url.Parse(service.HealthCheck.Test[len(service.HealthCheck.Test)-1])
	if err != nil || check.Host != options.HTTPHost+":"+strconv.Itoa(options.HTTPPort) || check.Path != "/healthz" {
		t.Errorf("the health check asks %s, and the server answers on %s:%d: %v", check, options.HTTPHost, options.HTTPPort, err)
	}
	options.Host, options.Port, options.HTTPPort, options.StoreDir, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT, t.TempDir(), true, true
	srv, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return srv
}

// withPassword is the address of a server for a user.
func withPassword(srv *server.Server, password string) string {
	return strings.Replace(srv.ClientURL(), "nats://", "nats://hindsight:"+password+"@", 1)
}

// TestNATSConfiguration runs the server on its file: all streams fit, the largest event passes, strangers don't, and what
// the container's health check asks answers.
func TestNATSConfiguration(t *testing.T) {
	const password = "31415926535"
	srv := natsServer(t, password)
	conn, err := bus.Connect(t.Context(), bus.Options{URL: withPassword(srv, password), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 1 << 30, Replicas: 1}); err != nil {
		t.Fatalf("the streams as they are by default: %v", err)
	}
	if err := conn.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	largest := bus.Message{Subject: events.Subject("acme.support", events.KindMessage), ID: "1", Data: make([]byte, events.MaxEventBytes)}
	if _, err := conn.Publish(t.Context(), largest); err != nil {
		t.Errorf("the largest event: %v", err)
	}
	for _, address := range []string{srv.ClientURL(), withPassword(srv, "wrong")} {
		if nc, err := nats.Connect(address); err == nil {
			nc.Close()
			t.Errorf("%s was let in", address)
		}
	}
	response, err := http.Get("http://" + srv.MonitorAddr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %s", response.Status)
	}
}

// TestNATSPasswords are texts that the server's grammar would take for something else: numbers, sizes, times, a truth.
func TestNATSPasswords(t *testing.T) {
	for _, password := range []string{"12345678", "0777", "1e9", "10k", "10MB", "true", "2026-01-01", "0xff", "f00d", "a-b_c"} {
		t.Run(password, func(t *testing.T) {
			srv := natsServer(t, password)
			nc, err := nats.Connect(withPassword(srv, password))
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		})
	}
}

// element is any element of an XML file.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// child finds what lies at a path of names, and fails the test when nothing does.
func (e element) child(t *testing.T, path ...string) element {
	t.Helper()
	for _, name := range path {
		i := slices.IndexFunc(e.Children, func(c element) bool { return c.XMLName.Local == name })
		if i < 0 {
			t.Fatalf("<%s> has no <%s>", e.XMLName.Local, name)
		}
		e = e.Children[i]
	}
	return e
}

func readXML(t *testing.T, path string) element {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var root element
	if err := xml.Unmarshal(raw, &root); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if root.XMLName.Local != "clickhouse" {
		t.Errorf("%s begins with <%s>", path, root.XMLName.Local)
	}
	return root
}

// sections are parts of the server's file that are no settings of system.server_settings.
var sections = regexp.MustCompile(`^(logger|[a-z_]+_log|[a-z_]+_port)$`)

// TestClickHouseConfiguration asks the engine that the tests run whether it knows what the files set.
func TestClickHouseConfiguration(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	for _, setting := range readXML(t, "clickhouse/config.xml").Children {
		name := setting.XMLName.Local
		known := enginetest.Exec(t, serverURL, fmt.Sprintf("SELECT count() FROM system.server_settings WHERE name = '%s'", name))
		if strings.TrimSpace(known) != "1" && !sections.MatchString(name) {
			t.Errorf("ClickHouse has no server setting %s", name)
		}
		if text := strings.TrimSpace(setting.Text); setting.attr("remove") == "" && len(setting.Children) == 0 {
			if _, err := strconv.ParseFloat(text, 64); err != nil {
				t.Errorf("<%s> is %q", name, text)
			}
		}
	}
	users := readXML(t, "clickhouse/users.xml")
	for _, setting := range users.child(t, "profiles", "default").Children {
		name, value := setting.XMLName.Local, setting.Text
		if _, err := strconv.Atoi(value); err != nil {
			value = "'" + value + "'"
		}
		got := enginetest.Exec(t, serverURL, fmt.Sprintf("SELECT toString(getSetting('%s')) SETTINGS %s = %s", name, name, value))
		if want := strings.Trim(value, "'"); strings.TrimSpace(got) != want && (want != "0" || strings.TrimSpace(got) != "false") {
			t.Errorf("%s = %s is taken as %s", name, want, got)
		}
	}
	if users.child(t, "users", "default").attr("remove") == "" {
		t.Error("the user without a password stays")
	}
	user := users.child(t, "users", "hindsight")
	environment := environmentOf(mustCompose(t, passwords()).Services["clickhouse"])
	password := user.child(t, "password")
	if password.Text != "" || environment[password.attr("from_env")] != passwords()["HINDSIGHT_CLICKHOUSE_PASSWORD"] {
		t.Errorf("the password is %q, from %q", password.Text, password.attr("from_env"))
	}
	for _, grant := range user.child(t, "grants").Children {
		enginetest.Exec(t, serverURL, "EXPLAIN AST "+grant.Text+" TO hindsight")
	}
}

// TestInitScript writes .env as a person does, and Compose takes it.
func TestInitScript(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), ".env")
	run := func() string {
		out, err := exec.CommandContext(t.Context(), "bash", "init.sh", target).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	run()
	first, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s can be read by others: %v, %v", target, info.Mode(), err)
	}
	if said := run(); !strings.Contains(said, "stays as it is") {
		t.Errorf("a second run says %q", said)
	}
	if again, err := os.ReadFile(target); err != nil || string(again) != string(first) {
		t.Errorf("a second run changed it: %v", err)
	}
	environment := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.+)$`).FindAllStringSubmatch(string(first), -1) {
		environment[m[1]] = m[2]
		if !regexp.MustCompile(`^[0-9a-f]{48}$`).MatchString(m[2]) {
			t.Errorf("%s=%s", m[1], m[2])
		}
	}
	if _, err := compose(t, environment); err != nil || len(environment) != len(passwords()) {
		t.Errorf("%d passwords; %v", len(environment), err)
	}
}

// until polls a condition.
func until(ctx context.Context, t *testing.T, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s: %v", patience, err)
		case <-tick.C:
		}
	}
}
