package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"
)

const (
	// Path is where the protocol is served.
	Path = "/mcp"
	// MaxRequestBytes bounds the body of a request.
	MaxRequestBytes = 1 << 20
	// authenticationTimeout bounds what a token's check may take.
	authenticationTimeout = 5 * time.Second
	// unavailableRetry is when a client should ask again while tokens cannot be checked.
	unavailableRetry = 2 * time.Second
	// maxCallers bounds how many tokens' budgets are kept; the one that was silent the longest starts anew.
	maxCallers = 4096
)

// Defaults of [HTTPOptions], for each token: agents come in bursts, and no honest one comes near these for long.
const (
	defaultReadsPerSecond  = 200
	defaultReadBurst       = 400
	defaultWritesPerSecond = 50
	defaultWriteBurst      = 500
)

// HTTPOptions configure [NewHTTPHandler]. Server, Logger and one of Authenticator and Anonymous must be set.
type HTTPOptions struct {
	Server *Server
	Logger *slog.Logger
	// Authenticator knows the tokens. Nil means that every token is refused.
	Authenticator Authenticator
	// Anonymous is who calls without a token. Nil refuses such calls: anything but a loopback address must.
	Anonymous *Identity
	// Toolset is what a client gets that does not ask for another by ?toolset=. Empty means core.
	Toolset Toolset
	// ReadsPerSecond and WritesPerSecond bound the calls of one token, ReadBurst and WriteBurst how many may come at
	// once. A write counts as both. 0 means 200, 50, 400 and 500.
	ReadsPerSecond, WritesPerSecond float64
	ReadBurst, WriteBurst           int
	// TrustedOrigins are web pages, such as http://localhost:6274, whose scripts may call.
	TrustedOrigins []string
}

type httpHandler struct {
	o        HTTPOptions
	protocol http.Handler
	writes   map[string]bool
	callers  *lru.Cache[string, *budgets]
}

// budgets are what one token may still do.
type budgets struct{ reads, writes *rate.Limiter }

// NewHTTPHandler serves the protocol at [Path] by streamable HTTP, statelessly, in its new and its older versions.
//
// It refuses foreign web pages and host names (403), callers without a valid token (401), bodies over [MaxRequestBytes]
// (413) and too many calls (429 with Retry-After); while tokens cannot be checked it answers 503 with Retry-After.
func NewHTTPHandler(o HTTPOptions) (http.Handler, error) {
	switch {
	case o.Server == nil || o.Logger == nil:
		return nil, errors.New("mcpserver: Server and Logger must be set")
	case o.Authenticator == nil && o.Anonymous == nil:
		return nil, errors.New("mcpserver: neither Authenticator nor Anonymous is set: nobody could call")
	case o.ReadsPerSecond < 0 || o.WritesPerSecond < 0 || o.ReadBurst < 0 || o.WriteBurst < 0:
		return nil, errors.New("mcpserver: rates and bursts must not be negative")
	}
	set, err := ParseToolset(string(o.Toolset))
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	o.Toolset = set
	o.ReadsPerSecond, o.ReadBurst = cmp.Or(o.ReadsPerSecond, defaultReadsPerSecond), cmp.Or(o.ReadBurst, defaultReadBurst)
	o.WritesPerSecond, o.WriteBurst = cmp.Or(o.WritesPerSecond, defaultWritesPerSecond), cmp.Or(o.WriteBurst, defaultWriteBurst)
	callers, err := lru.New[string, *budgets](maxCallers)
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	h := &httpHandler{o: o, writes: map[string]bool{}, callers: callers}
	for _, set := range toolsets() {
		for _, t := range tools(set) {
			h.writes[t.name] = t.scope > ScopeRead
		}
	}
	h.protocol = mcp.NewStreamableHTTPHandler(h.serverFor, &mcp.StreamableHTTPOptions{
		// The new protocol is served in this mode only, and older clients do without sessions as well.
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: MaxRequestBytes, PropagateRequestCancellation: true,
		Logger: slog.New(quiet{o.Logger.Handler()}),
	})
	foreign := http.NewCrossOriginProtection()
	for _, origin := range o.TrustedOrigins {
		if err := foreign.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("mcpserver: trusted origin %q: %w", origin, err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle(Path, foreign.Handler(h))
	return mux, nil
}

// serverFor chooses the tools. ServeHTTP has refused names that there are not.
func (h *httpHandler) serverFor(r *http.Request) *mcp.Server {
	return h.o.Server.protocol[Toolset(cmp.Or(r.URL.Query().Get("toolset"), string(h.o.Toolset)))]
}

func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.serverFor(r) == nil {
		h.refuse(w, http.StatusBadRequest, "There is no such toolset: ask for ?toolset=core, full or compat.")
		return
	}
	who, ok := h.authenticate(w, r)
	if !ok {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequestBytes))
	if err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			h.refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The request is larger than %d bytes: send less at once.", MaxRequestBytes))
			return
		}
		h.refuse(w, http.StatusBadRequest, "The request broke off: send it again.")
		return
	}
	if wait := h.spend(who, body); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		h.refuse(w, http.StatusTooManyRequests, "This token calls too often: wait for the time in Retry-After, then send the call again.")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.protocol.ServeHTTP(w, r.WithContext(withIdentity(r.Context(), who)))
}

// authenticate says who calls, or answers the request.
func (h *httpHandler) authenticate(w http.ResponseWriter, r *http.Request) (Identity, bool) {
	header := strings.TrimSpace(r.Header.Get("Authorization"))
	if header == "" {
		if h.o.Anonymous != nil {
			return *h.o.Anonymous, true
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="hindsight"`)
		h.refuse(w, http.StatusUnauthorized, "A token is needed: make one with `hindsight token` and send it as Authorization: Bearer <token>.")
		return Identity{}, false
	}
	scheme, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	err := ErrToken
	var who Identity
	if strings.EqualFold(scheme, "Bearer") && secret != "" && h.o.Authenticator != nil {
		ctx, cancel := context.WithTimeout(r.Context(), authenticationTimeout)
		defer cancel()
		who, err = h.o.Authenticator.Authenticate(ctx, secret)
	}
	switch {
	case err == nil:
		return who, true
	case errors.Is(err, ErrToken):
		w.Header().Set("WWW-Authenticate", `Bearer realm="hindsight", error="invalid_token"`)
		h.refuse(w, http.StatusUnauthorized, "The token is not valid here: it is unknown, expired or revoked. Make another with `hindsight token`.")
	default:
		h.o.Logger.WarnContext(r.Context(), "a token could not be checked", "error", err)
		w.Header().Set("Retry-After", strconv.Itoa(int(unavailableRetry.Seconds())))
		h.refuse(w, http.StatusServiceUnavailable, "Tokens cannot be checked right now, because Hindsight still starts or its store is away. Try again in some seconds.")
	}
	return Identity{}, false
}

// refuse answers as the protocol does, so that clients show the text.
func (h *httpHandler) refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%s}}`, -32000, quoted(text))
	if _, err := io.WriteString(w, body); err != nil {
		h.o.Logger.Debug("a client left before its answer", "error", err)
	}
}

// spend takes a request off the caller's budgets and says how long to wait if they are used up.
func (h *httpHandler) spend(who Identity, body []byte) time.Duration {
	calls, writes := h.count(body)
	b, ok := h.callers.Get(who.TokenID)
	if !ok {
		b = &budgets{
			reads: rate.NewLimiter(rate.Limit(h.o.ReadsPerSecond), h.o.ReadBurst), writes: rate.NewLimiter(rate.Limit(h.o.WritesPerSecond), h.o.WriteBurst),
		}
		if earlier, found, _ := h.callers.PeekOrAdd(who.TokenID, b); found {
			b = earlier
		}
	}
	now := time.Now()
	// A batch of more than the burst would wait for ever: it takes all there is.
	read := b.reads.ReserveN(now, min(calls, h.o.ReadBurst))
	write := b.writes.ReserveN(now, min(writes, h.o.WriteBurst))
	wait := max(read.DelayFrom(now), write.DelayFrom(now))
	if wait > 0 {
		write.CancelAt(now)
		read.CancelAt(now)
	}
	return wait
}

// count says how many calls a request makes, and how many of them write. What it cannot read counts once; the protocol
// refuses it.
func (h *httpHandler) count(body []byte) (calls, writes int) {
	messages := []json.RawMessage{body}
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' {
		messages = nil
		if json.Unmarshal(trimmed, &messages) != nil {
			return 1, 0
		}
	}
	for _, message := range messages {
		calls++
		var fields map[string]json.RawMessage // the names of a struct's fields would match in any case
		var method, name string
		if json.Unmarshal(message, &fields) != nil || json.Unmarshal(fields["method"], &method) != nil || method != "tools/call" {
			continue
		}
		var params map[string]json.RawMessage
		if json.Unmarshal(fields["params"], &params) == nil && json.Unmarshal(params["name"], &name) == nil && h.writes[name] {
			writes++
		}
	}
	return max(calls, 1), writes
}
