package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// ErrNoChDB says that libchdb.so was not found.
var ErrNoChDB = errors.New("the embedded ClickHouse is not installed")

// chdbFile is where scripts/setup.sh puts the library inside .engines.
var chdbFile = filepath.Join("chdb", "libchdb.so")

// FindChDB returns the path of libchdb.so. It looks at, in this order:
// HINDSIGHT_CHDB_LIBRARY (a file), HINDSIGHT_ENGINES_DIR (the directory that
// setup fills), .engines beside the executable or above it, and .engines in
// the working directory or above it. A variable that is set but names nothing
// is an error, not a reason to look further. When nothing is found the error
// wraps [ErrNoChDB] and says what to do.
func FindChDB(getenv func(string) string) (string, error) {
	if path := getenv("HINDSIGHT_CHDB_LIBRARY"); path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("%w: HINDSIGHT_CHDB_LIBRARY names %s, which is not a file; correct it or unset it", ErrNoChDB, path)
		}
		return filepath.Abs(path)
	}
	if dir := getenv("HINDSIGHT_ENGINES_DIR"); dir != "" {
		path := filepath.Join(dir, chdbFile)
		if !isFile(path) {
			return "", fmt.Errorf("%w: HINDSIGHT_ENGINES_DIR names %s, which has no %s; run `make setup` with the same variable, or unset it", ErrNoChDB, dir, chdbFile)
		}
		return filepath.Abs(path)
	}
	var starts []string
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		starts = append(starts, filepath.Dir(exe))
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	for _, dir := range starts {
		for {
			if path := filepath.Join(dir, ".engines", chdbFile); isFile(path) {
				return path, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", fmt.Errorf("%w (no .engines/%s above the program or the working directory, on %s/%s): run `make setup`, or set HINDSIGHT_CHDB_LIBRARY to a libchdb.so, or HINDSIGHT_CLICKHOUSE_URL to a ClickHouse server",
		ErrNoChDB, chdbFile, runtime.GOOS, runtime.GOARCH)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
