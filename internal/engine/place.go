package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrPortInUse says that another program listens on a port.
var ErrPortInUse = errors.New("port in use")

// makeDir creates dir for this user alone and checks that it can be written.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dirError(dir, err)
	}
	f, err := os.CreateTemp(dir, ".write-check-*")
	if err != nil {
		return dirError(dir, err)
	}
	_, err = f.Write(make([]byte, 4096))
	err = errors.Join(err, f.Close())
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return dirError(dir, err)
	}
	return nil
}

// dirError says in a person's words why a directory cannot be used.
func dirError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk that holds %s is full: free some space, or set HINDSIGHT_DATA_DIR to a directory on another disk: %w", dir, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s cannot be written by this user: change its owner, or set HINDSIGHT_DATA_DIR to a directory of yours: %w", dir, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("%s is not a directory: move the file away, or set HINDSIGHT_DATA_DIR to another directory: %w", dir, err)
	}
	return fmt.Errorf("use directory %s: %w", dir, err)
}

// portFree reports whether port can be listened on; if not, the error wraps
// ErrPortInUse and names the variable that changes it and the holder.
func portFree(ctx context.Context, port int, what, variable string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return portError(port, what, variable, err)
	}
	return l.Close()
}

func portError(port int, what, variable string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen for %s on 127.0.0.1:%d (%s): %w", what, port, variable, err)
	}
	holder := "another program"
	if pid, command := portHolder(port); pid != 0 {
		holder = fmt.Sprintf("process %d (%s)", pid, command)
	}
	return fmt.Errorf("%w: %d, which %s needs, is taken by %s: stop it, or set %s to a free port", ErrPortInUse, port, what, holder, variable)
}

// portHolder finds the process that listens on a TCP port, as far as /proc
// tells this user; 0 if it does not.
func portHolder(port int) (pid int, command string) {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			// sl local_address rem_address st … inode; state 0A is LISTEN.
			if len(f) < 10 || f[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if p, err := strconv.ParseUint(hex, 16, 16); err == nil && int(p) == port {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(inodes) == 0 {
		return 0, ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && inodes[target] {
			pid, _ = strconv.Atoi(strings.Split(link, "/")[2])
			return pid, processCommand(pid)
		}
	}
	return 0, ""
}

// processCommand is the command line of a process, shortened; "" if unknown.
func processCommand(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	command := strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
	if len(command) > 200 {
		command = command[:200] + "…"
	}
	return command
}
