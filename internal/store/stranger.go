package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/hindsight-memory/hindsight/internal/stranger"
)

// strangerTimeout bounds the question what answers at an address.
const strangerTimeout = 5 * time.Second

// stranger says what answers at our addresses when it is not ClickHouse, as an [ErrStranger]; nil when it is, or when
// nothing can be told.
func (c *ClickHouse) stranger(ctx context.Context) error {
	for _, address := range c.addresses {
		what := ""
		switch {
		case c.protocol == clickhouse.HTTP:
			what = c.strangerHTTP(ctx, address)
		case c.secure == nil:
			what = strangerNative(ctx, address)
		}
		if what != "" {
			return fmt.Errorf("%w: at %s answers %s: HINDSIGHT_CLICKHOUSE_URL names the wrong scheme, host or port; where nothing else was set, "+
				"ClickHouse has http:// at 8123, https:// at 8443 and clickhouse:// at 9000", ErrStranger, address, what)
		}
	}
	return nil
}

// strangerNative describes what speaks something else than ClickHouse's own protocol.
func strangerNative(ctx context.Context, address string) string {
	answer := stranger.At(ctx, address)
	// ClickHouse's native port knows a browser when it sees one.
	if strings.Contains(answer.Text, "clickhouse-client") {
		return ""
	}
	return answer.Words
}

// strangerHTTP asks for /ping, which ClickHouse and proxies for it answer with "Ok." and nobody else does.
func (c *ClickHouse) strangerHTTP(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, strangerTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: c.secure, DisableKeepAlives: true}
	scheme := "http"
	if c.secure != nil {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/ping", http.NoBody)
	if err != nil {
		return ""
	}
	response, err := transport.RoundTrip(request)
	if invalid := (*tls.CertificateVerificationError)(nil); errors.As(err, &invalid) {
		return "a server whose certificate is not valid for that (" + invalid.Error() + ")"
	}
	switch {
	case err != nil && ctx.Err() == nil && c.secure == nil:
		if answer := stranger.At(ctx, address); answer.Kind != stranger.HTTP {
			return answer.Words
		}
		return ""
	case err != nil && strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return "a server without TLS"
	case err != nil:
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // What came is enough to tell.
	switch {
	case response.StatusCode >= http.StatusInternalServerError, response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusRequestTimeout:
		return "" // a gateway whose server is not there yet
	case bytes.HasPrefix(body, []byte("Ok.")):
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return fmt.Sprintf("another HTTP server, to /ping with %q and %q", response.Status, shorten(line))
}
