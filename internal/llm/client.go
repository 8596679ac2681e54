package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

var (
	// ErrUnavailable means that the model could not be asked: its server is away, too slow or overloaded, or refuses the
	// key. The same question may be answered later.
	ErrUnavailable = memory.ErrModelUnavailable
	// ErrGarbage means that the model answered twice with what is not the JSON that was asked for.
	ErrGarbage = memory.ErrModelUnusable
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 8 * time.Second
	// maxComplaint is how much of a complaint is told to the model, in bytes.
	maxComplaint = 1500
	// maxEcho is how much of a bad answer is given back with the complaint, in bytes.
	maxEcho = 6000
)

// Options are the settings of a [Client]; BaseURL and Model are required.
type Options struct {
	// BaseURL is the endpoint up to and without /chat/completions; it usually ends in /v1.
	BaseURL string
	// Key is sent as bearer token; empty sends none.
	Key   string
	Model string
	// Timeout bounds one request; 0 means 60 s.
	Timeout time.Duration
	// Patience bounds one question with all its attempts; 0 means 3 minutes.
	Patience time.Duration
	// MaxTokens bounds an answer, thoughts included; 0 means 2048.
	MaxTokens int
	// MaxQuestionBytes is where the text of a question is cut; 0 means 48 KiB.
	MaxQuestionBytes int
	// Client does the requests; nil means one of its own.
	Client *http.Client
}

// Client asks one model. Several goroutines may use it at once.
type Client struct {
	opts Options
	api  *openai.Client
	http *http.Client
	// plain is set once the server has refused the schema as response format.
	plain atomic.Bool
	// oldLimit is set once the server has refused max_completion_tokens.
	oldLimit atomic.Bool
}

// New checks the options; it sends nothing yet.
func New(opts Options) (*Client, error) {
	u, err := url.Parse(opts.BaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("new model client: the base URL must be like https://host/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("new model client: the base URL must have no credentials, query or fragment; give the key apart")
	case opts.Model == "":
		return nil, errors.New("new model client: the name of the model is missing")
	case opts.Timeout < 0 || opts.Patience < 0 || opts.MaxTokens < 0 || opts.MaxQuestionBytes < 0:
		return nil, errors.New("new model client: times and limits must not be negative")
	}
	opts.Timeout = cmp.Or(opts.Timeout, time.Minute)
	opts.Patience = cmp.Or(opts.Patience, 3*time.Minute)
	opts.MaxTokens = cmp.Or(opts.MaxTokens, 2048)
	opts.MaxQuestionBytes = cmp.Or(opts.MaxQuestionBytes, 48<<10)
	if opts.Client == nil {
		opts.Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	config := openai.DefaultConfig(opts.Key)
	config.BaseURL = strings.TrimRight(opts.BaseURL, "/")
	config.HTTPClient = opts.Client
	return &Client{opts: opts, api: openai.NewClientWithConfig(config), http: opts.Client}, nil
}

// Close gives idle connections up.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Name is the model's, as it is written to what it reflected.
func (c *Client) Name() string { return c.opts.Model }

// Answer asks a question and returns the JSON object that the model answered, valid under the schema. Members under
// another name that synonyms has are renamed first. The error is [ErrUnavailable], [ErrGarbage] or the context's.
func (c *Client) Answer(ctx context.Context, system, question string, schema json.RawMessage, synonyms map[string]string) (json.RawMessage, error) {
	compiled, err := compile(schema)
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	messages := []openai.ChatCompletionMessage{
		{Role: openai.ChatMessageRoleSystem, Content: system},
		{Role: openai.ChatMessageRoleUser, Content: cutBytes(question, c.opts.MaxQuestionBytes)},
	}
	var complaint error
	for range 2 {
		said, err := c.complete(outer, ctx, messages, schema)
		if err != nil {
			return nil, err
		}
		answer, err := extract(said, compiled, synonyms)
		if err == nil {
			return answer, nil
		}
		complaint = err
		messages = append(messages[:2:2],
			openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: cutBytes(said, maxEcho)},
			openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, Content: "That answer cannot be used: " + cutBytes(err.Error(), maxComplaint) +
				"\nAnswer again with one JSON object that follows the schema, and nothing else."})
	}
	return nil, fmt.Errorf("%w: %w", ErrGarbage, complaint)
}

// complete sends a request until it is answered, the server refuses it for good, or time is up.
func (c *Client) complete(outer, ctx context.Context, messages []openai.ChatCompletionMessage, schema json.RawMessage) (string, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		said, err := c.once(ctx, messages, schema)
		if err == nil {
			return said, nil
		}
		if outer.Err() != nil {
			return "", fmt.Errorf("ask the model: %w", outer.Err())
		}
		status := statusOf(err)
		switch {
		case status == http.StatusBadRequest && !c.plain.Load() && mentions(err, "response_format", "json_schema", "schema", "structured"):
			c.plain.Store(true)
			continue
		case status == http.StatusBadRequest && !c.oldLimit.Load() && mentions(err, "max_completion_tokens"):
			c.oldLimit.Store(true)
			continue
		case status != 0 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout && status < http.StatusInternalServerError:
			return "", fmt.Errorf("%w: it refuses the request: %s", ErrUnavailable, c.censor(err))
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // Jitter needs no secret randomness.
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if outer.Err() != nil {
				return "", fmt.Errorf("ask the model: %w", outer.Err())
			}
			return "", fmt.Errorf("%w: no answer within %s: %s", ErrUnavailable, c.opts.Patience, c.censor(err))
		}
	}
}

func (c *Client) once(ctx context.Context, messages []openai.ChatCompletionMessage, schema json.RawMessage) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	request := openai.ChatCompletionRequest{Model: c.opts.Model, Messages: messages}
	if c.oldLimit.Load() {
		request.MaxTokens = c.opts.MaxTokens //nolint:staticcheck // Servers that do not know the new name are in use.
	} else {
		request.MaxCompletionTokens = c.opts.MaxTokens
	}
	if !c.plain.Load() {
		request.ResponseFormat = &openai.ChatCompletionResponseFormat{
			Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "answer", Schema: schema, Strict: true},
		}
	}
	response, err := c.api.CreateChatCompletion(ctx, request)
	if err != nil {
		return "", err
	}
	if len(response.Choices) == 0 {
		return "", nil // Nothing was said, which is no JSON either.
	}
	return response.Choices[0].Message.Content, nil
}

// statusOf is the status code of a server that answered, 0 when none did.
func statusOf(err error) int {
	if e := (*openai.APIError)(nil); errors.As(err, &e) {
		return e.HTTPStatusCode
	}
	if e := (*openai.RequestError)(nil); errors.As(err, &e) {
		return e.HTTPStatusCode
	}
	return 0
}

func mentions(err error, words ...string) bool {
	text := strings.ToLower(err.Error())
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// censor takes the key out of an error's text.
func (c *Client) censor(err error) string {
	text := cutBytes(err.Error(), 300)
	if c.opts.Key != "" {
		text = strings.ReplaceAll(text, c.opts.Key, "<key>")
	}
	return text
}
