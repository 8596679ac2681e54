package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// memoryClient is an agent's connection to its memory: the product's protocol over its own transport. It passes texts on
// as they come and counts them.
type memoryClient struct {
	session   *mcp.ClientSession
	transport *http.Transport
	arm       Arm
	tokens    *counter

	// Of the task under way:
	asked, joined, read int
	notices             []string
	ids                 []string // of the items in its answers, once an answer
	last                string   // the last answer that held something
}

// bearer adds an access token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r) //nolint:wrapcheck // A round tripper adds nothing.
}

// connect opens a session under an access token.
func connect(ctx context.Context, url, token string, arm Arm, tokens *counter) (*memoryClient, error) {
	transport := &http.Transport{}
	client := mcp.NewClient(&mcp.Implementation{Name: "simulated-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token, transport}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("connect to MCP: %w", err)
	}
	return &memoryClient{session: session, transport: transport, arm: arm, tokens: tokens}, nil
}

func (c *memoryClient) close() {
	_ = c.session.Close() // The server ends as well.
	c.transport.CloseIdleConnections()
}

func (c *memoryClient) begin() {
	c.asked, c.joined, c.read, c.ids, c.last, c.notices = 0, 0, 0, nil, "", nil
}

// call makes one call of a tool of the memory and returns the text of its answer.
func (c *memoryClient) call(ctx context.Context, task script.Task, tool string, arguments map[string]any) (string, error) {
	if c.arm.tells() {
		arguments["task_id"], arguments["session_id"] = task.ID, task.ID
	}
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", fmt.Errorf("call %s: %w", tool, err)
	}
	var b strings.Builder
	for _, content := range result.Content {
		if part, is := content.(*mcp.TextContent); is {
			b.WriteString(part.Text)
		}
	}
	if result.IsError {
		return "", fmt.Errorf("%s answered with an error: %s", tool, b.String())
	}
	return b.String(), nil
}

// nothingKnown is the notice of an answer without items. Any other says that something was left out.
const nothingKnown = "nothing is known about this yet"

// ask is a call that is read and counted.
func (c *memoryClient) ask(ctx context.Context, task script.Task, tool string, arguments map[string]any) (string, error) {
	text, err := c.call(ctx, task, tool, arguments)
	if err != nil {
		return "", err
	}
	n, err := c.tokens.count(text)
	if err != nil {
		return "", err
	}
	c.asked++
	c.read += n
	var answer struct {
		RecallID string `json:"recall_id"`
		Notice   string `json:"notice"`
		Items    []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	if answer.RecallID != "" && c.arm.tells() {
		c.joined++
	}
	for notice := range strings.SplitSeq(answer.Notice, "; ") {
		if notice != "" && notice != nothingKnown {
			c.notices = append(c.notices, notice)
		}
	}
	for _, item := range answer.Items {
		c.ids = append(c.ids, item.ID)
	}
	if len(answer.Items) > 0 {
		c.last = text
	}
	return text, nil
}

// Recall implements [agent.Memory].
func (c *memoryClient) Recall(ctx context.Context, task script.Task) (string, error) {
	about, err := json.Marshal(map[string]any{"task_type": task.Type, "input_summary": task.Goal, "available_tools": task.ToolNames()})
	if err != nil {
		return "", fmt.Errorf("describe the task: %w", err)
	}
	return c.ask(ctx, task, "retrieve_similar", map[string]any{"current_context": string(about)})
}

// Check implements [agent.Memory].
func (c *memoryClient) Check(ctx context.Context, task script.Task, call script.Call) (string, error) {
	if !c.arm.checks() {
		return "", nil
	}
	return c.ask(ctx, task, "check_action", map[string]any{"tool": call.Tool, "parameters": call.Parameters, "task_type": task.Type})
}

// Feedback implements [agent.Memory].
func (c *memoryClient) Feedback(ctx context.Context, task script.Task, item string, helpful bool) error {
	if !c.arm.tells() {
		return nil
	}
	_, err := c.call(ctx, task, "memory_feedback", map[string]any{"item_id": item, "helpful": helpful})
	return err
}
