package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrLocked says that another process holds the data directory.
var ErrLocked = errors.New("data directory in use")

// lockHolder is what the lock file tells of the process that holds it.
type lockHolder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Started time.Time `json:"started"`
}

// DirLock is a held data directory.
type DirLock struct{ file *os.File }

// LockDataDir takes the directory for this process; it creates it if need be.
// While another process holds it, the error wraps [ErrLocked] and names that
// process. The operating system lets go of the lock when its holder ends, in
// whatever way, so that a lock is never left over.
func LockDataDir(dir string) (*DirLock, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", dirError(dir, err))
	}
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lockedError(dir, f)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	text, err := json.Marshal(lockHolder{
		PID: os.Getpid(), Command: strings.Join(os.Args, " "), Started: time.Now().UTC().Truncate(time.Second),
	})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, dirError(dir, err))
	}
	return &DirLock{file: f}, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func lockedError(dir string, f *os.File) error {
	var h lockHolder
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil || json.Unmarshal(text, &h) != nil {
		// It has the lock and has not written its name yet.
		return fmt.Errorf("%w: another process has just taken %s: stop it, or set HINDSIGHT_DATA_DIR to another directory", ErrLocked, dir)
	}
	return fmt.Errorf("%w: %s is held by process %d (%s), running since %s: stop it (kill %d), connect to it, or set HINDSIGHT_DATA_DIR to another directory",
		ErrLocked, dir, h.PID, h.Command, h.Started.Format(time.RFC3339), h.PID)
}

// Unlock lets go of the directory. It is idempotent. The file stays: removing
// it would let two processes lock two files of one name.
func (l *DirLock) Unlock() error {
	if err := l.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("unlock data directory: %w", err)
	}
	return nil
}
