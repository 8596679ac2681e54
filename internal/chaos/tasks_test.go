package chaos_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// made is one made-up task in the trajectory format.
type made struct {
	Source  string         `json:"source"`
	Run     string         `json:"run"`
	Trial   int            `json:"trial"`
	TaskID  string         `json:"task_id"`
	Outcome map[string]any `json:"outcome"`
	Steps   []any          `json:"steps"`
}

type said struct {
	I       int    `json:"i"`
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content string `json:"content"`
}

type called struct {
	I      int            `json:"i"`
	Type   string         `json:"type"`
	Tool   string         `json:"tool"`
	Args   map[string]any `json:"args"`
	Result any            `json:"result"`
	Error  any            `json:"error"`
	By     string         `json:"by"`
}

// kinds of trouble that the made-up tasks have: the call that fails, why, and the call that works instead.
func kinds() []struct {
	source, goal, tool, parameter, wrong, right, err string
} {
	return []struct {
		source, goal, tool, parameter, wrong, right, err string
	}{
		{"shop/refunds", "Refund order %d to the customer's card", "refund_order", "amount", "twelve", "12.50", "ValueError: amount must be a decimal number"},
		{"shop/addresses", "Change the delivery address of order %d before it is sent", "set_address", "zip", "19122-", "19122", "ValidationError: zip has five digits"},
		{"travel/bookings", "Book the flight of traveller %d for next Monday", "book_flight", "date", "next Monday", "2026-03-02", "DateError: date must be ISO 8601"},
		{"data/reports", "查询表 %d 的月度销售总额", "run_sql", "table", "sales", "warehouse.sales", "TableNotFound: give the schema of the table"},
		{"ops/restarts", "Restart service %d after the certificate has changed", "restart_service", "unit", "web", "web.service", "UnitError: no such unit"},
	}
}

// makeTasks makes n tasks: each tries a call, most fail first, some repair it, some give up.
func makeTasks(n int) []string {
	random := rand.New(rand.NewPCG(7, 7))
	all := kinds()
	lines := make([]string, 0, n)
	for i := range n {
		k := all[i%len(all)]
		fails, repairs := random.IntN(4) > 0, random.IntN(3) > 0
		steps := []any{
			said{0, "message", "user", fmt.Sprintf(k.goal, 1000+i) + ", please."},
			called{1, "tool_call", "look_up", map[string]any{"id": 1000 + i}, "found, ready", nil, "assistant"},
		}
		if fails {
			steps = append(steps, called{2, "tool_call", k.tool, map[string]any{"id": 1000 + i, k.parameter: k.wrong}, nil, k.err, "assistant"})
		}
		if !fails || repairs {
			steps = append(steps, called{3, "tool_call", k.tool, map[string]any{"id": 1000 + i, k.parameter: k.right}, "done", nil, "assistant"})
		}
		if i%6 == 0 {
			steps = append(steps, said{4, "message", "user", "I always want to be told by e-mail, never by phone."})
		}
		steps = append(steps, said{5, "message", "assistant", "That is all."})
		line, err := json.Marshal(made{
			Source: k.source, Run: fmt.Sprint("agent-", i%4), Trial: i % 3, TaskID: strconv.Itoa(i / 3), Steps: steps,
			Outcome: map[string]any{"success": !fails || repairs, "reward": 1},
		})
		if err != nil {
			panic(err) // It is made of texts and numbers.
		}
		lines = append(lines, string(line))
	}
	return lines
}

// recorded are n recorded runs, as many of each file as possible, or none when there are no files.
func recorded(t *testing.T, n int) []string {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Log("HINDSIGHT_TEST_DATA is not set: made-up tasks only")
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "traces", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("HINDSIGHT_TEST_DATA has no traces: %v", err)
	}
	var lines []string
	for i, path := range files {
		lines = append(lines, firstLines(t, path, n*(i+1)/len(files)-n*i/len(files))...)
	}
	return lines
}

func firstLines(t *testing.T, path string, n int) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(unzipped)
	scanner.Buffer(nil, 16<<20)
	var lines []string
	for len(lines) < n && scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// input is a file with n tasks, a third of them recorded where there are any.
func input(t *testing.T, n int) string {
	t.Helper()
	lines := recorded(t, n/3)
	lines = append(lines, makeTasks(n-len(lines))...)
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// questions are what every installation is asked in the end.
func questions() []string {
	return []string{
		"Refund order 77 to the card",
		"the zip code of the delivery address is refused",
		"book a flight for next Monday",
		"查询销售总额",
		"no such unit when the service is restarted",
		"how does the customer want to be told",
		"exchange an item of a delivered order",
		"ValidationError",
	}
}
