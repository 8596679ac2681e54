package embed_test

import (
	"strings"
)

// language is what the mean of one language is made from: patterns whose
// places {a} to {d} are filled from lists. The sentences are of the kinds that
// memory holds (tasks, results, lessons, facts about people and projects) and
// deliberately about many things, as a mean should say nothing but "this is
// Korean".
type language struct {
	patterns []string
	slots    map[string][]string
}

// perPattern is how often each pattern is filled.
const perPattern = 10

// sentences fills every pattern perPattern times, each time with other words.
func (l language) sentences() []string {
	var all []string
	for p, pattern := range l.patterns {
		for i := range perPattern {
			s := pattern
			for k, slot := range []string{"{a}", "{b}", "{c}", "{d}"} {
				words := l.slots[slot]
				s = strings.ReplaceAll(s, slot, words[(i*(2*k+1)+p*(k+3)+k)%len(words)])
			}
			all = append(all, s)
		}
	}
	return all
}

// corpus is our own text, written for this purpose. {a} is a thing of work,
// {b} a tool or system, {c} something that went wrong, {d} a time or place.
var corpus = map[string]language{
	"en": {
		patterns: []string{
			"The call to {b} failed: {c}.",
			"Before you change {a}, check what {b} says about it.",
			"{b} reported {c} while it was working on {a}.",
			"Find {a} first, then ask {b} for the details.",
			"The user wants {a} to be ready {d}.",
			"Never send {a} without asking the customer.",
			"We moved {a} to another place {d}.",
			"If there is {c}, wait a minute and try again once.",
			"What happened to {a} {d}?",
			"How can I get {a} out of {b}?",
			"The task ended with success after {a} had been corrected.",
			"The task failed because nobody had looked at {a}.",
			"{b} needs the number of {a}, not its name.",
			"She likes to have {a} in a short table.",
			"He works {d} and answers in the evening.",
			"Prices for {a} went up {d}.",
			"My sister plants tomatoes and reads novels {d}.",
			"The garden is wet, and the children play inside {d}.",
			"Write the answer in two sentences and mention {a}.",
			"Use {b} instead of guessing; it knows {a}.",
			"The result of {b} was empty, since {a} did not exist.",
			"There was {c}, so the agent gave up too early.",
			"Two people asked for {a} {d}.",
			"Remember that {a} belongs to the other team.",
			"The parameter was a text, but {b} expects a number.",
			"After the change of {a}, run {b} again.",
			"Is it allowed to delete {a} {d}?",
			"The old value of {a} is wrong, take the new one.",
			"A friend cooked soup with beans and bread {d}.",
			"The train was late {d}, so the meeting began without us.",
			"Keep a copy of {a} before {b} starts.",
			"{c} again: third time {d}.",
			"The report about {a} has forty pages and no summary.",
			"Look for {a} in all places, not only in the first one.",
			"Ask for permission when money or {a} is involved.",
			"It is faster to load {a} in parts with {b}.",
		},
		slots: map[string][]string{
			"{a}": {"the order", "the booking", "the invoice", "the database table", "the configuration file", "the test report", "the customer's address", "the contract", "the shopping list", "the draft of the letter", "the source code", "the calendar", "the payment", "the picture", "the account", "the log file", "the recipe", "the measurement"},
			"{b}": {"the search tool", "the payment service", "the compiler", "the browser", "the calendar program", "the weather service", "the version control system", "the mail server", "the file system", "the translation service", "the warehouse system", "the test runner", "the spreadsheet"},
			"{c}": {"a timeout", "a wrong password", "a missing file", "too many requests", "an unknown identifier", "a broken connection", "an invalid date", "no space on the disk", "a refused permission", "a duplicate entry", "a syntax error"},
			"{d}": {"on Monday", "last week", "in the morning", "at the end of the month", "in the north of the city", "at home", "tomorrow", "in winter", "at the office", "after lunch", "next year", "twice a day", "on the way to the coast"},
		},
	},
	"zh": {
		patterns: []string{
			"调用{b}失败，原因是{c}。",
			"修改{a}之前，先看看{b}里的说明。",
			"{b}在处理{a}时出现了{c}。",
			"先找到{a}，再向{b}查询详细信息。",
			"用户希望{a}{d}能准备好。",
			"没有征求客户同意，不要发送{a}。",
			"我们{d}把{a}移到了别的地方。",
			"如果遇到{c}，等一分钟再重试一次。",
			"{a}{d}出了什么事？",
			"怎样才能从{b}里拿到{a}？",
			"更正{a}以后，任务顺利完成了。",
			"任务失败是因为没有人检查{a}。",
			"{b}需要的是{a}的编号，而不是名称。",
			"她喜欢用简短的表格来看{a}。",
			"他{d}上班，晚上才回复消息。",
			"{a}的价格{d}上涨了。",
			"我妹妹{d}种西红柿，也爱看小说。",
			"花园很湿，孩子们{d}在屋里玩。",
			"请用两句话回答，并且提到{a}。",
			"不要猜，用{b}就能知道{a}。",
			"{b}返回了空结果，因为{a}不存在。",
			"由于{c}，智能体过早地放弃了。",
			"{d}有两个人来问{a}。",
			"记住，{a}属于另一个团队。",
			"参数写成了文字，可是{b}要的是数字。",
			"改完{a}之后，要重新运行{b}。",
			"{d}可以删除{a}吗？",
			"{a}原来的值是错的，请用新的。",
			"朋友{d}用豆子和面包做了汤。",
			"火车{d}晚点了，会议没有等我们就开始了。",
			"{b}启动之前，先备份{a}。",
			"又是{c}，{d}已经第三次了。",
			"关于{a}的报告有四十页，却没有摘要。",
			"要在所有地方寻找{a}，不要只看第一处。",
			"涉及金钱或者{a}的时候，要先请求许可。",
			"用{b}分批读取{a}会更快。",
		},
		slots: map[string][]string{
			"{a}": {"订单", "预订", "发票", "数据表", "配置文件", "测试报告", "客户地址", "合同", "购物清单", "信件草稿", "源代码", "日程", "付款", "照片", "账户", "日志文件", "菜谱", "测量数据"},
			"{b}": {"搜索工具", "支付服务", "编译器", "浏览器", "日历程序", "天气服务", "版本管理系统", "邮件服务器", "文件系统", "翻译服务", "仓库系统", "测试程序", "电子表格"},
			"{c}": {"超时", "密码错误", "文件缺失", "请求过多", "编号不明", "连接中断", "日期无效", "磁盘空间不足", "权限被拒绝", "重复记录", "语法错误"},
			"{d}": {"星期一", "上周", "早上", "月底", "在城北", "在家里", "明天", "冬天", "在办公室", "午饭以后", "明年", "每天", "在去海边的路上"},
		},
	},
	"ja": {
		patterns: []string{
			"{b}の呼び出しに失敗しました。原因は{c}です。",
			"{a}を変更する前に、{b}の説明を確認してください。",
			"{b}が{a}を処理しているときに{c}が起きました。",
			"まず{a}を探し、それから{b}に詳細を尋ねます。",
			"利用者は{d}までに{a}を用意してほしいと言っています。",
			"お客様に確認せずに{a}を送ってはいけません。",
			"{d}、{a}を別の場所に移しました。",
			"{c}のときは、一分待ってもう一度だけ試します。",
			"{d}、{a}に何がありましたか。",
			"どうすれば{b}から{a}を取り出せますか。",
			"{a}を直したあと、作業は成功しました。",
			"誰も{a}を見ていなかったので、作業は失敗しました。",
			"彼女は{a}を短い表で見るのが好きです。",
			"妹は{d}、トマトを植えて小説を読みます。",
			"庭が濡れているので、子どもたちは{d}、家の中で遊びます。",
			"{b}の結果は空でした。{a}が存在しなかったからです。",
			"{a}は別のチームのものだと覚えておいてください。",
			"{b}には文字ではなく数字を渡します。",
			"{a}を変えたら、{b}をもう一度動かします。",
			"友人が{d}、豆とパンでスープを作りました。",
			"{b}を始める前に{a}の控えを取ります。",
			"{a}についての報告は四十ページありますが、要約がありません。",
		},
		slots: map[string][]string{
			"{a}": {"注文", "予約", "請求書", "データの表", "設定ファイル", "試験の報告", "お客様の住所", "契約書", "買い物のリスト", "手紙の下書き", "プログラム", "予定表", "支払い", "写真", "口座", "記録", "レシピ"},
			"{b}": {"検索ツール", "決済サービス", "コンパイラ", "ブラウザ", "カレンダー", "天気のサービス", "メールサーバー", "ファイルシステム", "翻訳サービス", "倉庫のシステム", "表計算"},
			"{c}": {"時間切れ", "パスワードの間違い", "ファイルの不足", "要求の多すぎ", "不明な番号", "接続の切断", "日付の誤り", "容量不足", "権限の拒否", "重複した登録", "文法の誤り"},
			"{d}": {"月曜日に", "先週", "朝", "月末に", "町の北で", "家で", "明日", "冬に", "会社で", "昼食のあと", "来年", "毎日", "海へ行く途中で"},
		},
	},
	"ko": {
		patterns: []string{
			"{b} 호출이 실패했습니다. 원인은 {c}입니다.",
			"{a} 내용을 바꾸기 전에 {b} 설명을 확인하세요.",
			"{b} 작업 중에 {c} 문제가 생겼습니다.",
			"먼저 {a} 위치를 찾고 {b}에서 자세한 내용을 물어보세요.",
			"사용자는 {d} {a} 준비가 끝나기를 원합니다.",
			"고객에게 묻지 않고 {a} 자료를 보내지 마세요.",
			"우리는 {d} {a} 자료를 다른 곳으로 옮겼습니다.",
			"{c} 문제가 있으면 일 분 기다렸다가 한 번 더 시도하세요.",
			"{d} {a} 관련해서 무슨 일이 있었나요?",
			"{b}에서 {a} 정보를 어떻게 꺼낼 수 있나요?",
			"{a} 오류를 고친 뒤에 작업이 성공했습니다.",
			"아무도 {a} 내용을 보지 않아서 작업이 실패했습니다.",
			"그녀는 {a} 정보를 짧은 표로 보는 것을 좋아합니다.",
			"여동생은 {d} 토마토를 심고 소설을 읽습니다.",
			"정원이 젖어서 아이들이 {d} 집 안에서 놉니다.",
			"{b} 결과가 비어 있었습니다. {a} 항목이 없었기 때문입니다.",
			"{a} 업무는 다른 팀이 맡는다는 것을 기억하세요.",
			"{b}에는 글자가 아니라 숫자를 넣어야 합니다.",
			"{a} 값을 바꾼 뒤에는 {b} 프로그램을 다시 실행하세요.",
			"친구가 {d} 콩과 빵으로 수프를 끓였습니다.",
			"{b} 시작 전에 {a} 사본을 보관하세요.",
			"{a} 보고서는 마흔 쪽인데 요약이 없습니다.",
		},
		slots: map[string][]string{
			"{a}": {"주문", "예약", "청구서", "데이터 표", "설정 파일", "시험 보고서", "고객 주소", "계약서", "장보기 목록", "편지 초안", "소스 코드", "일정", "결제", "사진", "계좌", "기록 파일", "요리법"},
			"{b}": {"검색 도구", "결제 서비스", "컴파일러", "브라우저", "달력", "날씨 서비스", "메일 서버", "파일 시스템", "번역 서비스", "창고 시스템", "표 계산"},
			"{c}": {"시간 초과", "잘못된 비밀번호", "파일 없음", "너무 많은 요청", "알 수 없는 번호", "연결 끊김", "잘못된 날짜", "저장 공간 부족", "권한 거부", "중복 등록", "문법 오류"},
			"{d}": {"월요일에", "지난주에", "아침에", "월말에", "도시 북쪽에서", "집에서", "내일", "겨울에", "사무실에서", "점심 후에", "내년에", "매일", "바다로 가는 길에"},
		},
	},
	"ru": {
		patterns: []string{
			"Вызов не удался: {b}, причина — {c}.",
			"Прежде чем менять что-либо, проверьте, что говорит {b}: там описано, как устроены {a}.",
			"Во время работы произошла ошибка: {c}, а {b} ничего не ответил.",
			"Сначала найдите {a}, затем уточните подробности.",
			"Пользователь хочет получить {a} {d}.",
			"Нельзя отправлять {a} без согласия клиента.",
			"Мы перенесли {a} в другое место {d}.",
			"Если случится {c}, подождите минуту и попробуйте ещё раз.",
			"Что произошло {d}, когда мы искали {a}?",
			"Как получить {a}, если не работает {b}?",
			"Задача завершилась успешно после того, как исправили {a}.",
			"Задача не выполнена, потому что никто не посмотрел {a}.",
			"Ей нравится видеть {a} в короткой таблице.",
			"Моя сестра {d} сажает помидоры и читает романы.",
			"В саду мокро, поэтому дети {d} играют дома.",
			"Результат пуст: {b} не нашёл {a}.",
			"Помните, что за {a} отвечает другая команда.",
			"Нужно передать число, а не текст, иначе {b} откажет.",
			"После изменений снова запустите проверку: {b} покажет {a}.",
			"Друг {d} сварил суп с фасолью и хлебом.",
			"Сохраните {a}, прежде чем начнёт работать {b}.",
			"В отчёте сорок страниц про {a}, но нет краткого вывода.",
		},
		slots: map[string][]string{
			"{a}": {"заказы", "брони", "счета", "таблицы базы данных", "файлы настроек", "отчёты о проверке", "адреса клиентов", "договоры", "списки покупок", "черновики писем", "исходные тексты", "расписания", "платежи", "фотографии", "учётные записи", "журналы", "рецепты"},
			"{b}": {"инструмент поиска", "платёжный сервис", "компилятор", "браузер", "календарь", "сервис погоды", "почтовый сервер", "переводчик", "складской учёт", "редактор таблиц", "архив"},
			"{c}": {"превышено время ожидания", "неверный пароль", "нет файла", "слишком много запросов", "неизвестный номер", "обрыв связи", "неверная дата", "нет места на диске", "отказ в доступе", "повторная запись", "ошибка синтаксиса"},
			"{d}": {"в понедельник", "на прошлой неделе", "утром", "в конце месяца", "на севере города", "дома", "завтра", "зимой", "в офисе", "после обеда", "в следующем году", "каждый день", "по дороге к морю"},
		},
	},
	"ar": {
		patterns: []string{
			"فشل استدعاء {b} بسبب {c}.",
			"قبل تغيير {a} تحقق مما يقوله {b}.",
			"حدث {c} أثناء عمل {b} على {a}.",
			"ابحث أولا عن {a} ثم اسأل {b} عن التفاصيل.",
			"يريد المستخدم أن يكون {a} جاهزا {d}.",
			"لا ترسل {a} دون سؤال العميل.",
			"نقلنا {a} إلى مكان آخر {d}.",
			"إذا حدث {c} فانتظر دقيقة ثم حاول مرة أخرى.",
			"ماذا حدث مع {a} {d}؟",
			"كيف أحصل على {a} من {b}؟",
			"نجحت المهمة بعد تصحيح {a}.",
			"فشلت المهمة لأن أحدا لم ينظر إلى {a}.",
			"هي تحب أن ترى {a} في جدول قصير.",
			"تزرع أختي الطماطم وتقرأ الروايات {d}.",
			"الحديقة مبللة والأطفال يلعبون في الداخل {d}.",
			"كانت نتيجة {b} فارغة لأن {a} غير موجود.",
			"تذكر أن {a} يخص فريقا آخر.",
			"يحتاج {b} إلى رقم وليس إلى نص.",
			"بعد تغيير {a} شغل {b} من جديد.",
			"طبخ صديقي حساء بالفاصوليا والخبز {d}.",
			"احتفظ بنسخة من {a} قبل أن يبدأ {b}.",
			"التقرير عن {a} من أربعين صفحة وليس فيه ملخص.",
		},
		slots: map[string][]string{
			"{a}": {"الطلب", "الحجز", "الفاتورة", "جدول البيانات", "ملف الإعدادات", "تقرير الاختبار", "عنوان العميل", "العقد", "قائمة التسوق", "مسودة الرسالة", "الشيفرة", "التقويم", "الدفع", "الصورة", "الحساب", "ملف السجل", "الوصفة"},
			"{b}": {"محرك البحث", "خدمة الدفع", "المترجم البرمجي", "المتصفح", "برنامج التقويم", "خدمة الطقس", "خادم البريد", "نظام الملفات", "خدمة الترجمة", "نظام المخزن", "برنامج الجداول"},
			"{c}": {"انتهاء المهلة", "خطأ في كلمة المرور", "نقص في الملفات", "كثرة الطلبات", "رقم غير معروف", "انقطاع الاتصال", "تاريخ غير صالح", "امتلاء القرص", "رفض الإذن", "تكرار القيد", "خطأ في الصياغة"},
			"{d}": {"يوم الاثنين", "في الأسبوع الماضي", "في الصباح", "في نهاية الشهر", "في شمال المدينة", "في البيت", "غدا", "في الشتاء", "في المكتب", "بعد الغداء", "في العام القادم", "كل يوم", "في الطريق إلى الساحل"},
		},
	},
}
