package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// roleVariable makes the test program another process of a test; endpointVariable says where its daemon is.
const (
	roleVariable     = "HINDSIGHT_TEST_ROLE"
	endpointVariable = "HINDSIGHT_TEST_ENDPOINT"
	tokenVariable    = "HINDSIGHT_TEST_TOKEN"
	toolsetVariable  = "HINDSIGHT_TEST_TOOLSET"
)

const (
	// roleStdio is the proxy, as the real program runs it.
	roleStdio = "stdio"
	// roleParent starts a proxy that inherits its stdin, says its process id and lives until it is killed.
	roleParent = "parent"
	// roleDaemon serves a world that knows one lesson, and says its address.
	roleDaemon = "daemon"
)

func playRole(role string) int {
	switch role {
	case roleStdio:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := mcpserver.ServeStdio(ctx, mcpserver.StdioOptions{
			Endpoint: os.Getenv(endpointVariable), Token: os.Getenv(tokenVariable), Toolset: mcpserver.Toolset(os.Getenv(toolsetVariable)),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case roleParent:
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleVariable+"="+roleStdio)
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_, _ = io.WriteString(os.Stdout, strconv.Itoa(child.Process.Pid)+"\n")
		_ = child.Wait()
		return 0
	case roleDaemon:
		return playDaemon()
	default:
		return 2
	}
}

func playDaemon() int {
	w := &world{answer: recall.Answer{RecallID: "r", Way: recall.WayExperience, Items: []recall.Item{{
		ID: "item-1", Layer: memory.LayerSnapshot, Text: "Lesson: look first 先看 🙂", Trust: memory.TrustUserStated, CreatedAt: longAgo(),
	}}}}
	s, err := mcpserver.New(w.options())
	if err == nil {
		var h http.Handler
		h, err = mcpserver.NewHTTPHandler(mcpserver.HTTPOptions{
			Server: s, Logger: slog.New(slog.DiscardHandler), Authenticator: twoTenants(), Anonymous: &mcpserver.Identity{Namespace: "local", Scope: mcpserver.ScopeWrite},
		})
		if err == nil {
			err = serveUntilStdinEnds(h)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveUntilStdinEnds(h http.Handler) error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	_, _ = io.WriteString(os.Stdout, "http://"+ln.Addr().String()+mcpserver.Path+"\n")
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
