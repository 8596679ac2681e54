package embed_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text, want string
		limit            int
	}{
		{"plain", "refund order 7", "refund order 7", 100},
		{"white space", " \t a \r\n\n b\u00a0 c\u3000", "a b c", 100},
		{"zero byte", "before\x00after", "before after", 100},
		{"invalid", "a\xff\xfeb", "a\uFFFDb", 100},
		{"composed", "cafe\u0301", "caf\u00e9", 100},
		{"cut on a rune", "数据库", "数据", 8},
		{"cut without a space at the end", "ab cd", "ab", 3},
		{"whole", "数据库", "数据库", 9},
		{"emoji", "👍", "👍", 4},
	} {
		got, err := embed.Clean(c.text, c.limit)
		if err != nil || got != c.want {
			t.Errorf("%s: Clean(%q, %d) = %q, %v; want %q", c.name, c.text, c.limit, got, err, c.want)
		}
	}
	for _, empty := range []string{"", " \n\t", "\x00\x01", "\xff", "\u200b\ufeff", "\u0301"} {
		if got, err := embed.Clean(empty, 100); !errors.Is(err, embed.ErrEmptyText) {
			t.Errorf("Clean(%q) = %q, %v; want ErrEmptyText", empty, got, err)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "plain text", "a\x00b", "\xff\xfe\xfd", "升级系统以前要保存设置", "\uFDFA\uFDFA", "e\u0301\u0301\u0301", "👩‍👩‍👧", " \u200b ", strings.Repeat("\u0300", 60)} {
		f.Add(s, 16)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 4 || limit > 1<<16 {
			return
		}
		got, err := embed.Clean(text, limit)
		if err != nil {
			if !errors.Is(err, embed.ErrEmptyText) || got != "" {
				t.Fatalf("Clean = %q, %v", got, err)
			}
			return
		}
		switch {
		case len(got) > limit, got == "", !utf8.ValidString(got), strings.Contains(got, "  "), strings.TrimSpace(got) != got,
			strings.ContainsFunc(got, unicode.IsControl):
			t.Fatalf("Clean(%q, %d) = %q", text, limit, got)
		}
		again, err := embed.Clean(got, limit)
		if err != nil || again != got {
			t.Fatalf("cleaning %q again gives %q, %v", got, again, err)
		}
		embed.Language(got)
	})
}

func TestLanguage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"The order was refunded.":              "en",
		"La commande a été remboursée.":        "en",
		"订单已经退款。":                              "zh",
		"先安装好 Docker 再运行 compose 命令。":          "zh",
		"The customer 王先生 wants a refund now.": "en",
		"注文は返金されました。":                          "ja",
		"주문이 환불되었습니다.":                         "ko",
		"Заказ возвращён.":                     "ru",
		"تم رد المبلغ.":                        "ar",
		"आदेश वापस कर दिया गया।":               "",
		"Η παραγγελία επιστράφηκε.":            "",
		"404 503 -1": "en",
	} {
		if got := embed.Language(text); got != want {
			t.Errorf("Language(%q) = %q, want %q", text, got, want)
		}
	}
}
