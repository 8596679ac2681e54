package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
)

const (
	mostTokens = 1500
	mostBytes  = 8000
)

func tokens(t *testing.T, text string) int {
	t.Helper()
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	n, err := codec.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func listed(t *testing.T, set mcpserver.Toolset) *mcp.ListToolsResult {
	t.Helper()
	session := inMemory(t, newServer(t, &world{}), set, admin())
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestCoreListIsSmall(t *testing.T) {
	t.Parallel()
	list := listed(t, mcpserver.ToolsetCore)
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	n := tokens(t, string(raw))
	t.Logf("core tools/list: %d tools, %d tokens (o200k_base), %d bytes", len(list.Tools), n, len(raw))
	if len(list.Tools) != 8 || n > mostTokens || len(raw) > mostBytes {
		t.Errorf("%d tools, %d tokens, %d bytes: at most 8, %d, %d\n%s", len(list.Tools), n, len(raw), mostTokens, mostBytes, raw)
	}
}

func TestListsHaveTheToolsOfTheDesign(t *testing.T) {
	t.Parallel()
	core := []string{
		"check_action", "get_rules", "memory_feedback", "memory_forget", "memory_search", "memory_write", "retrieve_similar", "store_snapshot",
	}
	full := slices.Sorted(slices.Values(append([]string{"explain", "memory_history", "memory_update"}, core...)))
	for set, want := range map[mcpserver.Toolset][]string{
		mcpserver.ToolsetCore: core, mcpserver.ToolsetFull: full,
		mcpserver.ToolsetCompat: {"forget_memory", "recall_memory", "retrieve_memory", "store_memory", "update_memory"},
	} {
		var got []string
		for _, tool := range listed(t, set).Tools {
			got = append(got, tool.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", set, got, want)
		}
	}
}

// Providers refuse a whole list for one schema that they do not read.
func TestSchemasArePlain(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z_]{1,40}$`)
	for _, set := range []mcpserver.Toolset{mcpserver.ToolsetCore, mcpserver.ToolsetFull, mcpserver.ToolsetCompat} {
		for _, tool := range listed(t, set).Tools {
			if !name.MatchString(tool.Name) || !regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString("mcp__hindsight__"+tool.Name) {
				t.Errorf("%s: the name would be refused", tool.Name)
			}
			first, _, _ := strings.Cut(tool.Description, ".")
			if !strings.HasPrefix(first, "Use when ") || len(tool.Description) > 2000 {
				t.Errorf("%s: the description does not begin with when to use it: %q", tool.Name, tool.Description)
			}
			a := tool.Annotations
			if a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil || *a.OpenWorldHint || a.Title == "" {
				t.Errorf("%s: annotations %+v", tool.Name, a)
				continue
			}
			raw, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
				if !strings.Contains(string(raw), hint) {
					t.Errorf("%s: %s is missing: %s", tool.Name, hint, raw)
				}
			}
			if a.ReadOnlyHint && *a.DestructiveHint {
				t.Errorf("%s reads only and destroys", tool.Name)
			}
			plain(t, tool.Name, tool.InputSchema)
		}
	}
}

func plain(t *testing.T, where string, schema any) {
	t.Helper()
	object, ok := schema.(map[string]any)
	if !ok {
		t.Errorf("%s: schema %v is no object", where, schema)
		return
	}
	kind, ok := object["type"].(string)
	if !ok || !slices.Contains([]string{"object", "string", "number", "integer", "boolean", "array"}, kind) {
		t.Errorf("%s: type %v", where, object["type"])
	}
	for key, value := range object {
		switch key {
		case "type", "description":
		case "enum", "required":
			if list, ok := value.([]any); !ok || len(list) == 0 {
				t.Errorf("%s: %s is %v", where, key, value)
			}
		case "items":
			plain(t, where+"[]", value)
		case "properties":
			for name, inner := range value.(map[string]any) {
				plain(t, fmt.Sprintf("%s.%s", where, name), inner)
			}
		default:
			t.Errorf("%s: keyword %s", where, key)
		}
	}
	if kind == "object" && object["properties"] == nil || kind == "array" && object["items"] == nil {
		t.Errorf("%s: a schema of type %s without its parts", where, kind)
	}
}

func TestListIsPrivateAndInstructionsAreShort(t *testing.T) {
	t.Parallel()
	w := &world{answer: answerWith("secret lesson")}
	session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())
	served(t, session, "retrieve_similar", map[string]any{"current_context": "x"})
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if list.CacheScope != "private" {
		t.Errorf("cacheScope is %q", list.CacheScope)
	}
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://recent"})
	if err != nil {
		t.Fatal(err)
	}
	if read.CacheScope != "private" || read.TTLMs != 0 {
		t.Errorf("memory may be cached: %+v", read.Cacheable)
	}
	text := session.InitializeResult().Instructions
	if text == "" || len(text) > 2000 || strings.Contains(text, "secret lesson") {
		t.Errorf("instructions: %q", text)
	}
}
