package enginetest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Weather is what a [Proxy] does to connections.
type Weather int

// Kinds of weather.
const (
	Fine    Weather = iota // connections reach the server
	Refused                // connections are closed at once, as when the server is not there
	Silent                 // connections are taken and nothing answers, as behind a network that lost its way
)

// Proxy stands between a program and a server that it reaches by TCP, and can be told to be in the way.
type Proxy struct {
	listener net.Listener
	target   string
	ctx      context.Context //nolint:containedctx // it is the test's, which the connections end with
	end      context.CancelFunc

	mu    sync.Mutex
	now   Weather
	conns map[net.Conn]struct{}
	tries int
	done  sync.WaitGroup
}

// NewProxy starts a proxy for a server, host:port, which ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("start a proxy for %s: %v", target, err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(tb.Context()))
	p.done.Go(p.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.end()
		p.done.Wait()
	})
	return p
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Turn changes the weather and breaks what is connected.
func (p *Proxy) Turn(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.tries = w, 0
	for c := range p.conns {
		_ = c.Close()
	}
}

// Cut breaks all connections and refuses new ones until [Proxy.Heal].
func (p *Proxy) Cut() { p.Turn(Refused) }

// Heal lets connections through again.
func (p *Proxy) Heal() { p.Turn(Fine) }

// Attempts counts the connections since the weather turned.
func (p *Proxy) Attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tries
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.tries++
		now := p.now
		if now != Refused {
			p.conns[client] = struct{}{}
		}
		p.mu.Unlock()
		if now == Refused {
			_ = client.Close()
			continue
		}
		p.done.Go(func() { p.serve(client, now) })
	}
}

func (p *Proxy) serve(client net.Conn, w Weather) {
	defer p.forget(client)
	if w == Silent {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.conns[server] = struct{}{}
	turned := p.now != w // while it was being dialled
	p.mu.Unlock()
	defer p.forget(server)
	if turned {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

func (p *Proxy) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
