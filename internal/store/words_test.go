package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// TestWordsAreCutAsByTheServer compares the two ways of cutting a text, since a word that one of them does not know is
// never found.
func TestWordsAreCutAsByTheServer(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	c := migrated(t)
	for _, text := range []string{
		"", "a", "Plain words, with: punctuation! And CamelCase, snake_case, kebab-case", "ERR-4711 v1.2.3 /etc/app.conf x@y.example #7",
		"退款订单支付失败ABC 123，请检查 猫 ", "カードの支払いー失敗 ひらがな", "환불이 실패 했습니다", "การคืนเงินล้มเหลว ก", "ВОЗВРАТ не прошёл", "ההחזר נכשל",
		"धनवापसी विफल रही", "Straße GRÖSSE ÉTÉ e\u0301te\u0301 naïve", "١٢٣ ١٢", "emoji 🧾 and \u2028 \t\n\r spaces", strings.Repeat("long", 17), strings.Repeat("é", 33), "ﬁ Ⅷ ½ x² Ａ１",
	} {
		quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
		into := c.Database() + ".item_terms"
		enginetest.Exec(t, url, "TRUNCATE TABLE "+into)
		enginetest.Exec(t, url, "INSERT INTO "+c.Database()+".item_texts (namespace, item_id, layer, task_type, text, recorded_at) VALUES ('t', 'i', 'memory', '', "+quoted+", now64(3))")
		got := strings.Split(strings.TrimSuffix(enginetest.Exec(t, url, "SELECT term FROM "+into+" ORDER BY term FORMAT TSVRaw"), "\n"), "\n")
		want := append(store.WordsOf(text), "")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q by the server and into %q here", text, got, want)
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, seed := range []string{"", "ERR-4711 get_user /a/b.c", "退款x失败", "\xff\xfe", "AAAA", "a-b_c.d/e:f@g#h", "１２３", "..--//"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, w := range store.WordsOf(text) {
			if w == "" || len(w) > 64 {
				t.Errorf("%q has the word %q", text, w)
			}
		}
		for _, id := range store.Identifiers(text) {
			if !store.Holds(text, id) {
				t.Errorf("%q does not hold its own identifier %q", text, id)
			}
		}
	})
}
