package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
)

// The secrets of these tests are put together at run time, so that no scanner takes this file for a leak.
const (
	alnum  = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
	upper  = "Q1W2E3R4T5Y6U7I8"
	jwt    = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	pemKey = "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcN\n-----END RSA PRIVATE" + " KEY-----"
)

func TestMaskByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"password":"hunter2"}`, `{"password":"[masked:password]"}`},
		{`{"Password" : "x"}`, `{"Password" : "[masked:password]"}`},
		{`{"passwd":"x","db_pwd":"y","passphrase":"z"}`, `{"passwd":"[masked:password]","db_pwd":"[masked:password]","passphrase":"[masked:password]"}`},
		{`{"secret":"x"}`, `{"secret":"[masked:secret]"}`},
		{`{"client_secret":"x","clientSecret":"y"}`, `{"client_secret":"[masked:secret]","clientSecret":"[masked:secret]"}`},
		{`{"api_key":"x","apikey":"x","X-Api-Key":"x","openaiApiKey":"x","OPENAI_API_KEY":"x","APIKey":"x"}`, `{"api_key":"[masked:api_key]","apikey":"[masked:api_key]","X-Api-Key":"[masked:api_key]","openaiApiKey":"[masked:api_key]","OPENAI_API_KEY":"[masked:api_key]","APIKey":"[masked:api_key]"}`},
		{`{"access_token":"x","refreshToken":"x","id_token":"x","auth-token":"x"}`, `{"access_token":"[masked:token]","refreshToken":"[masked:token]","id_token":"[masked:token]","auth-token":"[masked:token]"}`},
		{`{"private_key":"x"}`, `{"private_key":"[masked:private_key]"}`},
		{`{"Authorization":"x","Cookie":"a=b","Set-Cookie":["a=b","c=d"]}`, `{"Authorization":"[masked:authorization]","Cookie":"[masked:cookie]","Set-Cookie":["[masked:cookie]","[masked:cookie]"]}`},
		{`{"credentials":{"user":"u","pin":1234,"valid":true,"none":null,"empty":""}}`, `{"credentials":{"user":"[masked:credential]","pin":"[masked:credential]","valid":true,"none":null,"empty":""}}`},
		{`{"password":12345678}`, `{"password":"[masked:password]"}`},
		{`{"a":[{"b":{"secret":"x"}}],"n":1.0}`, `{"a":[{"b":{"secret":"[masked:secret]"}}],"n":1.0}`},
		{`{"p\u0061ssword":"x"}`, `{"p\u0061ssword":"[masked:password]"}`},
		{`[{"name":"DB_PASSWORD","value":"x"},{"name":"SIZE","value":"7"}]`, `[{"name":"DB_PASSWORD","value":"[masked:password]"},{"name":"SIZE","value":"7"}]`},
		{`{"result":"{\"password\": \"x\", \"n\": 1.0}"}`, `{"result":"{\"password\": \"[masked:password]\", \"n\": 1.0}"}`},
		{`{"result":"[{\"inner\":\"{\\\"secret\\\":\\\"x\\\"}\"}]"}`, `{"result":"[{\"inner\":\"{\\\"secret\\\":\\\"[masked:secret]\\\"}\"}]"}`},
		{`{"token":"` + alnum + `"}`, `{"token":"[masked:token]"}`},
	} {
		if got := string(events.Mask(json.RawMessage(c.in))); got != c.want {
			t.Errorf("Mask(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

func TestMaskFieldCountsTheName(t *testing.T) {
	t.Parallel()
	if got := string(events.MaskField("x-api-key", json.RawMessage(`["abc"]`))); got != `["[masked:api_key]"]` {
		t.Errorf("MaskField = %s", got)
	}
	if got := string(events.MaskField("order_id", json.RawMessage(`"abc"`))); got != `"abc"` {
		t.Errorf("MaskField = %s", got)
	}
}

func TestMaskTextByForm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"openai":              {"key sk-" + alnum + " end", "key [masked:api_key] end"},
		"openai project":      {"sk-proj-" + alnum, "[masked:api_key]"},
		"anthropic":           {"(sk-ant-api03-" + alnum + ")", "([masked:anthropic_key])"},
		"aws":                 {"AKIA" + upper + ",", "[masked:aws_key],"},
		"aws temporary":       {"ASIA" + upper, "[masked:aws_key]"},
		"github":              {"ghp_" + alnum, "[masked:github_token]"},
		"github oauth":        {"gho_" + alnum, "[masked:github_token]"},
		"github fine-grained": {"github_pat_" + alnum, "[masked:github_token]"},
		"gitlab":              {"glpat-" + alnum[:20], "[masked:gitlab_token]"},
		"slack":               {"xoxb-123456789012-" + alnum, "[masked:slack_token]"},
		"google":              {"AIza" + alnum[:35], "[masked:google_key]"},
		"google oauth":        {"ya29." + alnum, "[masked:token]"},
		"sendgrid":            {"SG." + alnum[:22] + "." + alnum, "[masked:token]"},
		"hindsight":           {"hs_" + alnum, "[masked:hindsight_token]"},
		"jwt":                 {"see " + jwt + ".", "see [masked:jwt]."},
		"pem":                 {"before\n" + pemKey + "\nafter", "before\n[masked:private_key]\nafter"},
		"pem without its end": {pemKey[:50], "[masked:private_key]"},
		"bearer":              {"Authorization: Bearer abc123def456", "Authorization: Bearer [masked:authorization]"},
		"bearer in prose":     {"sent bearer abc123def456 to it", "sent bearer [masked:bearer_token] to it"},
		"bearer alone":        {"Bearer abcdefgh", "Bearer [masked:bearer_token]"},
		"basic":               {"header Basic dXNlcjpwYXNz", "header Basic [masked:basic_auth]"},
		"url":                 {"postgres://app:s3cr3t@db:5432/x", "postgres://app:[masked:url_password]@db:5432/x"},
		"url, @ in password":  {"redis://:p@ss@host", "redis://:[masked:url_password]@host"},
		"env":                 {"export DB_PASSWORD=hunter2\nls", "export DB_PASSWORD=[masked:password]\nls"},
		"query":               {"GET /x?api_key=abc&size=3", "GET /x?api_key=[masked:api_key]&size=3"},
		"python":              {`client(api_key="abc", n=1)`, `client(api_key="[masked:api_key]", n=1)`},
		"typed":               {`password: str = "abc"`, `password: str = "[masked:password]"`},
		"yaml":                {"db:\n  password: correcthorse\n", "db:\n  password: [masked:password]\n"},
		"cut json":            {`{"password": "abc", "items": [1, 2`, `{"password": "[masked:password]", "items": [1, 2`},
		"escaped json":        {`{\"password\": \"abc\", \"n\": 1`, `{\"password\": \"[masked:password]\", \"n\": 1`},
		"curl":                {`curl -H "X-Api-Key: abc123def" x`, `curl -H "X-Api-Key: [masked:api_key]" x`},
		"cookie header":       {"Cookie: sid=1; theme=dark\nHost: x", "Cookie: [masked:cookie]\nHost: x"},
		"flag":                {"login --user bob --password Hunter2 now", "login --user bob --password [masked:password] now"},
		"flag with =":         {"login --password=Hunter2", "login --password=[masked:password]"},
		"after escaped break": {`x\nsk-` + alnum, `x\n[masked:api_key]`},
		"a Chinese field":     {`{"密码":"abc"}`, `{"密码":"[masked:password]"}`},
		"in Chinese":          {"密钥sk-" + alnum + "。", "密钥[masked:api_key]。"},
		"json":                {` {"password":"x"} `, ` {"password":"[masked:password]"} `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := events.MaskText(c.in); got != c.want {
				t.Errorf("MaskText(%q)\n got %q\nwant %q", c.in, got, c.want)
			}
		})
	}
}

// harmless is what must come through untouched: a mask that eats ids makes every lesson useless.
var harmless = []string{
	`"credit_card_4421486"`, `"gift_card_1234567"`, `"certificate_7473"`, `"#W2378156"`, `"mia_li_3668"`, `"HAT069"`,
	`"6f1ed002ab5595859014ebf0951522d9"`, `"0190163d-8694-739b-aea5-966c26f8ad90"`,
	`"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`,
	`{"max_tokens":100,"token_count":12345678901234567890,"prompt_tokens":1.0,"completion_tokens":1e3}`,
	`{"secretary":"Ann","password_policy":"strict","has_password":true,"secret":null,"password":""}`,
	`{"token":"hello","next_page_token":"` + alnum + `","eos_token":"</s>"}`,
	`{"key":"value","name":"Mia Li","monkey":"x","keyboard":"qwerty","primary_key":"id","public_key":"ssh-ed25519"}`,
	`{"PWD":"/home/mia","author":"x","authorized":"yes","pre_authorization":"A-17"}`,
	`"basic economy, 3 bags, one way"`, `"Basic Economy2024 is not refundable"`, `"the bearer of this letter"`,
	`"task-management-for-teams-2024-and-beyond"`, `"disk-partition-table-version-2"`, `"sk-learn-pipeline-configuration"`,
	`"http://localhost:8123/path@x"`, `"see https://example.com/a?b=c"`, `"mailto:mia.li3818@example.com"`, `"git@github.com:a/b.git"`,
	`"at 10:00:00 the price = 375"`, `"Password: required"`, `"if password == other { return }"`, `"std::secret::Value"`,
	`"api_key=os.environ[\"KEY\"]"`, `"export TOKEN=$CI_TOKEN"`, `"password=${DB_PASSWORD}"`, `"--password"`, `"password = None"`,
	`"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"`, `"eyJ is how a JWT begins"`,
	`"Error: payment method not found"`, `"AKIA is a prefix"`, `"AKIAabcdefghijklmnop"`, `"Cookie: a small file"`,
	`"你好,密码是什么?"`, `"\ud83d\ude00 \u2028 \/"`, `12345678901234567890.10`, `[1.0,-0,1e400]`, `null`, `""`,
	"{ \"b\" : 1 ,\n\"a\":[ ] , \"c\": { } }",
}

func TestMaskKeepsEverythingElse(t *testing.T) {
	t.Parallel()
	for _, in := range harmless {
		for _, form := range []string{in, `{"result":` + in + `}`, mustQuote(t, in)} {
			if got := events.Mask(json.RawMessage(form)); string(got) != form {
				t.Errorf("Mask(%s) = %s", form, got)
			}
		}
	}
}

func TestMaskReturnsItsInputWhenNothingIsMasked(t *testing.T) {
	t.Parallel()
	in := json.RawMessage(`{"a": [1.0, "x\ny"]}`)
	if got := events.Mask(in); &got[0] != &in[0] {
		t.Error("Mask copied a value that it did not change")
	}
}

func TestMaskDoesNotChangeItsInput(t *testing.T) {
	t.Parallel()
	in := json.RawMessage(`{"password":"x","b":"` + "sk-" + alnum + `","c":[1,2]}`)
	before := bytes.Clone(in)
	events.Mask(in)
	if !bytes.Equal(in, before) {
		t.Errorf("Mask wrote into its argument: %s", in)
	}
}

func mustQuote(t *testing.T, s string) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func FuzzMask(f *testing.F) {
	for _, s := range harmless {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		`{"password":"x"}`, `{"a":"{\"secret\":\"x\"}"}`, `"Bearer abcdef123456"`, `"a://b:c@d"`, `{"name":"api_key","value":1}`,
		`"password=\"a\\"`, `"api_key=[masked:x"`, `"\\nsk-aaaaaaaaaaaaaaaaaaaaaa1"`, `"` + "-----BEGIN PRIVATE" + ` KEY-----"`, `{"\ud800":"\udfff"}`,
		`"Cookie: a=b\\n--password x"`, "\xff", `{"token":"` + alnum + `"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once := events.Mask(raw)
		if json.Valid(raw) && !json.Valid(once) {
			t.Fatalf("Mask(%q) = %q is not JSON", raw, once)
		}
		if twice := events.Mask(once); !bytes.Equal(twice, once) {
			t.Fatalf("masking is not idempotent: %q then %q then %q", raw, once, twice)
		}
		if bytes.Equal(once, raw) && len(raw) > 0 && &once[0] != &raw[0] {
			t.Fatalf("Mask(%q) copied what it did not change", raw)
		}
		text := events.MaskText(string(raw))
		if again := events.MaskText(text); again != text {
			t.Fatalf("masking text is not idempotent: %q then %q then %q", raw, text, again)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	row := `{"order_id":"#W2378156","items":[{"name":"T-Shirt","price":50.88,"options":{"size":"M","material":"cotton"}}],"payment":"credit_card_4421486","note":"delivered at 10:00, thanks"}`
	structured := `{"step":3,"tool":"get_order","parameters":{"order_id":"#W2378156"},"result":[` + strings.TrimSuffix(strings.Repeat(row+",", 200), ",") + `]}`
	inString, err := json.Marshal(map[string]string{"tool": "get_order", "result": "[" + strings.TrimSuffix(strings.Repeat(row+",", 200), ",") + "]"})
	if err != nil {
		b.Fatal(err)
	}
	prose := fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("I would like to return the T-shirt: it's too small, and the delivery took 3 weeks. ", 400))
	secret := strings.ReplaceAll(structured, "thanks", "sk-"+alnum)
	for name, in := range map[string]string{"structured": structured, "json_in_string": string(inString), "prose": prose, "many_secrets": secret} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				events.Mask(json.RawMessage(in))
			}
		})
	}
}
