package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/config"
)

const (
	// healthcheckTimeout bounds one question; /readyz answers within 5 seconds, whatever hangs behind it.
	healthcheckTimeout = 8 * time.Second
	// maxHealthAnswer is how much of an answer is repeated, in bytes.
	maxHealthAnswer = 4096
)

// Healthcheck asks the process that runs with these settings on this machine whether it is ready, by /readyz on the port.
// It is for the health checks of containers, whose images have no other program. The error says what is not ready.
func Healthcheck(ctx context.Context, cfg *config.Config, port int) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	// An address that stands for all of a machine's, such as 0.0.0.0, is this machine when it is asked.
	url := "http://" + net.JoinHostPort(cfg.Bind, strconv.Itoa(port)) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	// Neither a proxy of the environment nor a connection that stays has a place here.
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("no answer; the process does not run, or has other settings: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return fmt.Errorf("not ready: %s: %s", response.Status, strings.TrimSpace(string(answer)))
}
