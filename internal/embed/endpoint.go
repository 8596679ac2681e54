package embed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashabaranov/go-openai"
)

// maxAnswerBytes bounds what is read of one answer.
const maxAnswerBytes = 64 << 20

// maxServerMessage is how much of a server's own words goes into an error.
const maxServerMessage = 300

// EndpointOptions are the settings of [Endpoint].
type EndpointOptions struct {
	// BaseURL is the endpoint up to and without /embeddings; it usually ends
	// in /v1. Required; without credentials, query or fragment.
	BaseURL string
	// Key is sent as bearer token; empty sends none. It is never logged and is
	// taken out of errors.
	Key string
	// Model is the model's name as the server knows it. Required.
	Model string
	// Dimension is what the model must answer with; 0 learns it from the first
	// answer.
	Dimension int
	// Batch is the most texts of one request; 0 means 32.
	Batch int
	// MaxTextBytes is where a text is cut; 0 means [MaxTextBytes], which is also
	// the most that an [Embedder] hands on. Lower it for servers that refuse
	// what is longer than their model takes.
	MaxTextBytes int
	// Timeout bounds one request; 0 means 30 seconds.
	Timeout time.Duration
	// Attempts is how often a request is sent at most; 0 means 5.
	Attempts int
	// RetryFrom and RetryTo bound the pause before the next attempt, which
	// doubles each time; 0 means half a second and 20 seconds. A server's
	// Retry-After makes a pause longer; when it asks for more than RetryTo, the
	// call fails at once.
	RetryFrom, RetryTo time.Duration
	// Client does the requests; nil means one of its own.
	Client *http.Client
}

// Endpoint embeds by any server that speaks OpenAI's protocol. Vectors are
// scaled to length 1; nothing is subtracted, as nothing is known of the model.
//
// Too many requests, errors of the server and of the network are tried again
// with back-off and jitter, and wrap memory.ErrUnavailable at last. What the
// server refuses wraps [ErrRefused], an answer that cannot be used
// [ErrBadVector]; both say what to do.
type Endpoint struct {
	o         EndpointOptions
	client    *openai.Client
	http      *http.Client
	ownClient bool
	dimension atomic.Int64
	closed    atomic.Bool
}

var _ Model = (*Endpoint)(nil)

// NewEndpoint checks o; it sends nothing yet.
func NewEndpoint(o EndpointOptions) (*Endpoint, error) {
	u, err := url.Parse(o.BaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// The text itself might hold a key.
		return nil, errors.New("the base URL of the embedding endpoint is no http or https URL; set HINDSIGHT_EMBEDDING_BASE_URL to something like http://127.0.0.1:11434/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the base URL of the embedding endpoint has a user, query or fragment; leave them out and set the key on its own")
	case o.Model == "":
		return nil, errors.New("the embedding endpoint needs a model; set EMBEDDING_MODEL to a name that the server knows")
	case o.Dimension < 0 || o.Batch < 0 || o.MaxTextBytes < 0 || o.Timeout < 0 || o.Attempts < 0 || o.RetryFrom < 0 || o.RetryTo < 0:
		return nil, errors.New("a number in the settings of the embedding endpoint is negative")
	}
	o.Batch = cmp.Or(o.Batch, 32)
	o.MaxTextBytes = cmp.Or(o.MaxTextBytes, MaxTextBytes)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Attempts = cmp.Or(o.Attempts, 5)
	o.RetryFrom = cmp.Or(o.RetryFrom, 500*time.Millisecond)
	o.RetryTo = cmp.Or(o.RetryTo, 20*time.Second)
	e := &Endpoint{o: o, http: o.Client}
	if e.http == nil {
		e.http, e.ownClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, true //nolint:forcetypeassert // the standard library documents this type.
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = o.BaseURL
	config.HTTPClient = boundedClient{e.http}
	e.client = openai.NewClientWithConfig(config)
	e.dimension.Store(int64(o.Dimension))
	return e, nil
}

// boundedClient reads no more than maxAnswerBytes of an answer.
type boundedClient struct{ client *http.Client }

func (b boundedClient) Do(r *http.Request) (*http.Response, error) {
	response, err := b.client.Do(r) //nolint:gosec // the address is what the operator configured.
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswerBytes), response.Body}
	return response, nil
}

// Name implements [Model].
func (e *Endpoint) Name() string { return e.o.Model }

// Dimension implements [Model]. It asks the server the first time.
func (e *Endpoint) Dimension(ctx context.Context) (int, error) {
	if e.dimension.Load() == 0 {
		if _, err := e.Embed(ctx, []string{"dimension"}); err != nil {
			return 0, err
		}
	}
	return int(e.dimension.Load()), nil
}

// Close implements [Model].
func (e *Endpoint) Close() error {
	if !e.closed.Swap(true) && e.ownClient {
		e.http.CloseIdleConnections()
	}
	return nil
}

// Embed implements [Model].
func (e *Endpoint) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	cleaned := make([]string, len(texts))
	for i, t := range texts {
		c, err := Clean(t, e.o.MaxTextBytes)
		if err != nil {
			return nil, fmt.Errorf("text %d of %d: %w", i+1, len(texts), err)
		}
		cleaned[i] = c
	}
	vectors := make([][]float32, 0, len(texts))
	for batch := range slices.Chunk(cleaned, e.o.Batch) {
		got, err := e.batch(ctx, batch)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, got...)
	}
	return vectors, nil
}

// batch sends one request until it is answered, refused or given up.
func (e *Endpoint) batch(ctx context.Context, texts []string) ([][]float32, error) {
	for attempt := 1; ; attempt++ {
		if e.closed.Load() {
			return nil, ErrClosed
		}
		response, err := e.send(ctx, texts)
		if err == nil {
			return e.vectors(response, len(texts))
		}
		if ctx.Err() != nil {
			return nil, unavailable(ctx, "the embedding endpoint did not answer in time; ask again in a moment")
		}
		again, err := e.judge(err)
		if !again {
			return nil, err
		}
		asked := retryAfter(response.Header())
		if attempt >= e.o.Attempts || asked > e.o.RetryTo {
			return nil, &unavailableError{
				what:  fmt.Sprintf("the embedding endpoint %s did not answer after %d attempts; check that it runs and is not overloaded", e.o.BaseURL, attempt),
				cause: err,
			}
		}
		pause := e.backOff(attempt)
		if asked > 0 {
			pause = max(pause, asked+jitter(e.o.RetryFrom))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, &unavailableError{
				what:  "the embedding endpoint did not answer in time; ask again in a moment",
				cause: fmt.Errorf("%w, before that: %w", context.Cause(ctx), err),
			}
		}
	}
}

func (e *Endpoint) send(ctx context.Context, texts []string) (openai.EmbeddingResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	return e.client.CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{Input: texts, Model: openai.EmbeddingModel(e.o.Model)})
}

// backOff is how long to wait after the given number of attempts: exponential,
// shortened by up to a third at random so that those who failed together do not
// come back together.
func (e *Endpoint) backOff(attempt int) time.Duration {
	d := min(e.o.RetryFrom, e.o.RetryTo)
	for i := 1; i < attempt && d < e.o.RetryTo; i++ {
		d = min(2*d, e.o.RetryTo)
	}
	return d - jitter(d/3)
}

// jitter is a random duration up to most.
func jitter(most time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(most) + 1)) //nolint:gosec // spreading load needs no secrecy
}

// retryAfter is how long the server asks to wait, 0 if it does not.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// refusal is an ErrRefused that has nothing to do with the texts: any other
// would be refused as well.
type refusal struct{ text string }

func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", ErrRefused, r.text) }

func (r *refusal) Unwrap() error { return ErrRefused }

// judge says whether err may pass, and returns it with what to do and without
// the key.
func (e *Endpoint) judge(err error) (again bool, judged error) {
	status, message, code := 0, err.Error(), ""
	if apiErr := (*openai.APIError)(nil); errors.As(err, &apiErr) {
		status, message = apiErr.HTTPStatusCode, apiErr.Message
		code = fmt.Sprint(apiErr.Code)
	} else if requestErr := (*openai.RequestError)(nil); errors.As(err, &requestErr) {
		status, message = requestErr.HTTPStatusCode, string(requestErr.Body)
	}
	message = e.redact(message)
	refuse := func(advice string) (bool, error) {
		return false, &refusal{fmt.Sprintf("%s (%s answered %d: %s)", advice, e.o.BaseURL, status, message)}
	}
	switch {
	case status == 0:
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			return false, &refusal{fmt.Sprintf("the answer of %s is not that of an OpenAI-compatible endpoint; check HINDSIGHT_EMBEDDING_BASE_URL, which usually ends in /v1: %s", e.o.BaseURL, message)}
		}
		return true, errors.New(message)
	case code == "insufficient_quota":
		return refuse("the account has no quota left; check its plan, or use another endpoint or the local model")
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= http.StatusInternalServerError:
		return true, fmt.Errorf("it answered %d: %s", status, message)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return refuse("the key is missing, wrong or not allowed to use the model; check HINDSIGHT_LLM_API_KEY")
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return refuse("it knows no model " + e.o.Model + " or has no /embeddings; check EMBEDDING_MODEL and HINDSIGHT_EMBEDDING_BASE_URL")
	default:
		return false, fmt.Errorf("%w: it does not accept the request; if it says that a text is too long, cut texts shorter, else check EMBEDDING_MODEL (%s answered %d: %s)",
			ErrRefused, e.o.BaseURL, status, message)
	}
}

// redact takes the key out of what a server or the network says, and shortens
// it to one line.
func (e *Endpoint) redact(message string) string {
	if e.o.Key != "" {
		message = strings.ReplaceAll(message, e.o.Key, "[key]")
	}
	if cleaned, err := Clean(message, maxServerMessage); err == nil {
		return cleaned
	}
	return "no reason given"
}

// vectors checks an answer and puts it into the order of the texts.
func (e *Endpoint) vectors(response openai.EmbeddingResponse, n int) ([][]float32, error) {
	if len(response.Data) != n {
		return nil, fmt.Errorf("%w: %s answered %d texts with %d vectors; it may not support several texts in a request", ErrBadVector, e.o.BaseURL, n, len(response.Data))
	}
	vectors := make([][]float32, n)
	numbered := slices.ContainsFunc(response.Data, func(d openai.Embedding) bool { return d.Index != 0 })
	for i, d := range response.Data {
		at := i // a server that numbers nothing answers in order
		if numbered {
			at = d.Index
		}
		if at < 0 || at >= n || vectors[at] != nil {
			return nil, fmt.Errorf("%w: %s numbers its vectors wrongly", ErrBadVector, e.o.BaseURL)
		}
		if len(d.Embedding) == 0 {
			return nil, fmt.Errorf("%w: %s answered with an empty vector", ErrBadVector, e.o.BaseURL)
		}
		vectors[at] = d.Embedding
	}
	e.dimension.CompareAndSwap(0, int64(len(vectors[0])))
	want := int(e.dimension.Load())
	for _, v := range vectors {
		if len(v) != want {
			return nil, fmt.Errorf("%w: %s answered with %d dimensions instead of %d; if the server now runs another model, restart and run `hindsight reindex`", ErrBadVector, e.o.BaseURL, len(v), want)
		}
		if err := normalise(v); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}
