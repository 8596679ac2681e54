package engine_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// curl is what people try first.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	run := func(stdin string, arguments ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--max-time", "30"}, arguments...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("curl %q: %v: %s", arguments, err, out)
		}
		return string(out)
	}
	at := serverURL + "/?database=" + db
	for _, c := range []struct {
		stdin     string
		arguments []string
		want      string
	}{
		{"", []string{serverURL + "/ping"}, "Ok.\n"},
		{"", []string{serverURL + "/?query=SELECT%201"}, "1\n"},
		{"", []string{"-G", "--data-urlencode", "query=SELECT 2", serverURL}, "2\n"},
		{"SELECT 3", []string{"--data-binary", "@-", serverURL}, "3\n"},
		{"CREATE TABLE t (n UInt8, s String) ENGINE = MergeTree ORDER BY n", []string{"--data-binary", "@-", at}, ""},
		{"INSERT INTO t VALUES (1, 'a')", []string{"--data-binary", "@-", at}, ""},
		{"2,b\n3,c\n", []string{"--data-binary", "@-", at + "&query=INSERT%20INTO%20t%20FORMAT%20CSV"}, ""},
		{"{\"n\":4,\"s\":\"d\"}\n", []string{"-T", "-", "-X", "POST", at + "&query=INSERT%20INTO%20t%20FORMAT%20JSONEachRow"}, ""}, // chunked
		{"", []string{"-d", "SELECT count(), max(s) FROM t FORMAT JSONCompactEachRow", at}, "[4, \"d\"]\n"},
		{"", []string{"-u", "default:", "-H", "X-ClickHouse-Format: JSONEachRow", "-d", "SELECT n FROM t ORDER BY n LIMIT 1", at}, "{\"n\":1}\n"},
		{"", []string{"-o", "/dev/null", "-w", "%{http_code}", "-d", "SELECT * FROM nothing", at}, "404"},
		{"", []string{"-I", "-o", "/dev/null", "-w", "%{http_code}", serverURL + "/?query=SELECT%201"}, "200"},
		{"", []string{"--compressed", at + "&enable_http_compression=1&query=SELECT%20sum(n)%20FROM%20t"}, "10\n"},
	} {
		if got := run(c.stdin, c.arguments...); got != c.want {
			t.Errorf("curl %q = %q, want %q", c.arguments, got, c.want)
		}
	}
}
