#!/usr/bin/env python3
"""Writes tokens/made.txt: text of every kind that a tokenizer meets, the same bytes each time.

Standard library only. Sentences of about thirty languages with their words in random order, code and markup
from templates, words from every block of Unicode, and traps: joined emoji, stacked marks, control characters,
runs of one character, line ends of all kinds, white space that is not a space, texts of special tokens.
"""
import pathlib
import random
import unicodedata

# Own sentences, made for this test.
LANGUAGES = '''
The committee met on Tuesday and didn't agree on the budget; they'll meet again next week, won't they?
Der Ausschuss tagte am Dienstag und konnte sich über den größten Teil des Haushalts nicht einigen.
Le comité s'est réuni mardi et n'a pas trouvé d'accord sur l'essentiel du budget, qu'il reverra à Noël.
El comité se reunió el martes y no logró ponerse de acuerdo; ¿volverán mañana los señores de la comisión?
O comitê reuniu-se na terça-feira e não chegou a um acordo sobre a maior parte das questões orçamentárias.
Il comitato si è riunito martedì e non ha trovato un accordo: perciò tornerà la settimana prossima.
De commissie kwam dinsdag bijeen en werd het niet eens over de begroting van het volgende jaar.
Utskottet sammanträdde på tisdagen och kunde inte enas om någon större del av nästa års budget.
Udvalget mødtes tirsdag og kunne ikke blive enige om størstedelen af næste års budget på øen.
Valiokunta kokoontui tiistaina eikä päässyt yksimielisyyteen ensi vuoden talousarvion pääkohdista.
Komisja zebrała się we wtorek i nie uzgodniła większości budżetu; żółw śpi, a źrebię goni łąkę.
Výbor se sešel v úterý a neshodl se na většině rozpočtu; příště přijde také předseda ze Žďáru.
A bizottság kedden ülésezett, és nem értett egyet a költségvetés legnagyobb részével; tűrő gőzölgő.
Komite salı günü toplandı ve bütçenin büyük bölümünde anlaşamadı; ışıklar söndü, İstanbul uyudu.
Comitetul s-a întrunit marți și nu a căzut de acord asupra celei mai mari părți a bugetului țării.
Комитет собрался во вторник и не пришёл к согласию по большей части бюджета на следующий год.
Комітет зібрався у вівторок і не дійшов згоди щодо більшої частини бюджету; з'їзд відкладено.
Комисията се събра във вторник и не постигна съгласие за по-голямата част от бюджета.
Η επιτροπή συνεδρίασε την Τρίτη και δεν συμφώνησε για το μεγαλύτερο μέρος του προϋπολογισμού.
הוועדה התכנסה ביום שלישי ולא הגיעה להסכמה על רוב התקציב של השנה הבאה, ולכן תיפגש שוב.
اجتمعت اللجنة يوم الثلاثاء ولم تتفق على معظم الميزانية، وسوف تجتمع مرة أخرى في الأسبوع القادم.
کمیته روز سه‌شنبه تشکیل جلسه داد و درباره بیشتر بودجه سال آینده به توافق نرسید.
समिति की बैठक मंगलवार को हुई और अगले वर्ष के बजट के अधिकांश भाग पर सहमति नहीं बन सकी।
কমিটি মঙ্গলবার বৈঠকে বসেছিল এবং আগামী বছরের বাজেটের বেশিরভাগ অংশে একমত হতে পারেনি।
குழு செவ்வாய்க்கிழமை கூடியது, ஆனால் அடுத்த ஆண்டு வரவு செலவுத் திட்டத்தில் உடன்படவில்லை.
కమిటీ మంగళవారం సమావేశమైంది కానీ వచ్చే సంవత్సరం బడ్జెట్‌పై ఏకాభిప్రాయం కుదరలేదు.
คณะกรรมการประชุมกันเมื่อวันอังคารและไม่สามารถตกลงกันเรื่องงบประมาณส่วนใหญ่ได้
委员会星期二开会,没有就明年预算的大部分内容达成一致意见,因此下周将再次开会讨论。
委員會星期二開會,沒有就明年預算的大部分內容達成一致意見,因此下週將再次開會討論。
委員会は火曜日に開かれましたが、来年度予算の大部分については合意に至りませんでした。カタカナもあります。
위원회는 화요일에 모였지만 내년 예산의 대부분에 대해 합의하지 못했으므로 다음 주에 다시 모입니다.
Ủy ban đã họp vào thứ Ba và không thống nhất được phần lớn ngân sách của năm tới.
Komite bertemu pada hari Selasa dan tidak menyepakati sebagian besar anggaran tahun depan.
Kamati ilikutana Jumanne na haikukubaliana kuhusu sehemu kubwa ya bajeti ya mwaka ujao.
კომიტეტი შეიკრიბა სამშაბათს და ვერ შეთანხმდა მომავალი წლის ბიუჯეტის უმეტეს ნაწილზე.
Հանձնաժողովը հավաքվեց երեքշաբթի օրը և չհամաձայնեց հաջորդ տարվա բյուջեի մեծ մասի շուրջ։
ኮሚቴው ማክሰኞ ዕለት ተሰብስቦ በሚቀጥለው ዓመት በጀት አብዛኛው ክፍል ላይ አልተስማማም።
'''.strip().split('\n')

SPECIAL = '''<|endoftext|> <|im_start|> <|im_end|> <bos> <eos> <pad> <unk> <mask> <s> </s> <start_of_turn> <end_of_turn>
<|eot_id|> <|begin_of_text|> [INST] [/INST] <<SYS>> <repo_name> <file_sep> <unused42> <0x0A> <0x41> <table> </table>
<start_of_image> [multimodal] <|im_start|>system <start_of_turn>user <|im_end <|im_end|| <end_of_turn <h1>x</h1>'''.split()

SPACES = [' ', '  ', '   ', '\t', '\t\t', '\n', '\n\n', '\r\n', '\r\n\r\n', '\r', '\x0b', '\x0c', '\u0085', '\u00a0',
          '\u1680', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\u200b', '\u2060', '\ufeff', '\u180e',
          ' \n ', '\n \n', ' \t ', ' ' * 17, ' ' * 40, '\n' * 33, '\t' * 9, ' \r\n  \n\t x', '\u2581', ' \u2581 ']

APOSTROPHES = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D",
               "\u2019s", "\u2019re", "'\u017f", "'x", "''s", " 's", "'", "'1", "'\u212a", "'l", "'r", "'v", "'L\u013a"]

EMOJI = ['😀', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪🇫🇷', '1️⃣', '🧑🏿‍🚀', '☕️', '❤️‍🔥', '🫠', '🕵🏼‍♀️', '🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f']


def sentences(r, size):
    out = []
    n = 0
    while n < size:
        text = r.choice(LANGUAGES)
        words = text.split(' ')
        if len(words) > 4 and r.random() < .7:
            r.shuffle(words)
        elif len(words) <= 4:           # no spaces: cut it elsewhere
            i = r.randrange(len(text))
            words = [text[i:] + text[:i]]
        line = ' '.join(words)
        if r.random() < .1:
            line = line.upper()
        line += r.choice(['\n', '\n', ' ', '\n\n', '\r\n', ''])
        out.append(line)
        n += len(line.encode())
    return ''.join(out)


def identifier(r):
    parts = [r.choice('get set page token index buffer len count tmp http user id x y i Node value_of'.split())
             for _ in range(r.randint(1, 3))]
    return r.choice(['_'.join, ''.join])(r.choice([parts, [p.title() for p in parts]]))


def code_line(r):
    a, b, c = (identifier(r) for _ in range(3))
    n = r.randrange(10 ** r.randint(1, 12))
    pad = ' ' * 4 * r.randint(0, 5) if r.random() < .8 else '\t' * r.randint(1, 4)
    return pad + r.choice([
        f'if ({a}->{b}[{n}] != NULL && !{c}(&{a}, "%s\\n", {n}u)) {{', f'static int {a}(const struct {b} *{c});', '}',
        f'def {a}({b}, *, {c}={n}):', f'    return [{a} for {a} in {b} if {a} % {n} == 0]  # {c}', f'"{a}": [{n}, {n / 7}, null, true],',
        f'<div class="{a}" id=\'{b}\'><a href="https://example.org/{a}?{b}={n}&amp;{c}=%20">{c}</a></div>', f'<!-- {a} --><br/>&nbsp;&#x{n:x};',
        f'| {a} | {n} | **{b}** | `{c}` |', f'- [ ] {a}: see [{b}]({c}.md#{n})', f'#{"#" * r.randint(0, 5)} {a} {n}',
        f'\\section{{{a}}} $\\frac{{{b}_{{{n}}}}}{{x^2}} \\le \\sum_i {c}_i$', f'@@ -{n},7 +{n},8 @@ {a}', f'+{a} -= {b} << {n} | ~{c};',
        f'{a}: &{b} !!str "{c}"', f'SELECT {a}, COUNT(*) FROM {b} WHERE {c} >= {n} ORDER BY 1;', f'0x{n:08X} {n:o} {n:e} 1_000_000 3.14e-10',
        f'$ {a} --{b}={n} | grep -E "^[a-z]+{{2,}}$" > /tmp/{c}.log 2>&1', f'std::vector<std::pair<{a}, {b}>> {c}{{}};', f'#include <{a}/{b}.h>',
        f'\x1b[1;31m{a}\x1b[0m', f'<table><tr><td>{a}</td><td>{n}</td></tr></table>', f'===={"=" * r.randint(0, 80)}', '-' * r.randint(3, 90), '.' * r.randint(3, 70)]) + r.choice(['\n', '\n', '\r\n', '\n\n'])


def code(r, size):
    out = []
    n = 0
    while n < size:
        line = code_line(r)
        out.append(line)
        n += len(line)
    return ''.join(out)


def blocks(r, size):
    """Words from every 128 code points that hold assigned characters, so that no script is missed."""
    # Characters of Unicode 3.2 only: later ones may have other categories in one library or another.
    db = unicodedata.ucd_3_2_0
    starts = [s for s in range(0, 0x30000, 128)
              if any(db.category(chr(c)) not in ('Cn', 'Cs', 'Co') for c in range(s, s + 128, 5))]
    out = []
    n = 0
    while n < size:
        for start in starts:
            chars = [chr(c) for c in range(start, start + 128) if db.category(chr(c)) not in ('Cn', 'Cs', 'Co')]
            if not chars or (start >= 0x3400 and r.random() < .9):  # not only Han and Hangul
                continue
            words = [''.join(r.choice(chars) for _ in range(r.randint(1, 7))) for _ in range(r.randint(1, 3))]
            word = r.choice([' ', ' ', '', '-', "'", '\n']).join(words) + r.choice([' ', ' ', '\n', '', '1', '.'])
            out.append(word)
            n += len(word.encode())
    return ''.join(out)


def traps(r, size):
    marks = [chr(c) for c in range(0x300, 0x370)]
    controls = [chr(c) for c in range(1, 32)] + ['\x7f', '\u0080', '\u009f', '\u200e', '\u202e', '\ufffd', '\uffff', '\U0010ffff', '\ue000', '\U000f0000']
    digits = ['0123456789', '٠١٢٣٤٥٦٧٨٩', '０１２３４５６７８９', '①②③④', 'ⅠⅡⅢ', '½¾²³']
    kinds = [
        lambda: r.choice(SPECIAL), lambda: r.choice(SPACES), lambda: r.choice(SPACES), lambda: 'it' + r.choice(APOSTROPHES) + r.choice(['', ' ', 'x']), lambda: r.choice(EMOJI) * r.randint(1, 3),
        lambda: r.choice('aeé') + ''.join(r.choice(marks) for _ in range(r.randint(1, 9))), lambda: r.choice(controls) * r.randint(1, 3),
        lambda: ''.join(r.choice(r.choice(digits)) for _ in range(r.randint(1, 40))), lambda: r.choice('Aa.=-_ 0!\n中é😀') * r.randint(1, 200), lambda: r.choice(['Hello', ' world', 'the', 'ﬁn', 'Ǆ', 'İ', 'ß', 'ſ', 'ª', 'º', '٪', '‰', '№', '™']),
        lambda: ''.join(r.choice('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~') for _ in range(r.randint(1, 9))), lambda: f'{r.randrange(2100)}-{r.randrange(13):02}-{r.randrange(32):02}T{r.randrange(24):02}:00Z',
        lambda: f'{r.randrange(10**6):,}.{r.randrange(100):02} €', lambda: unicodedata.normalize('NFD', r.choice(['Ångström', 'crème brûlée', '한국어', 'Việt'])),
    ]
    out = []
    n = 0
    while n < size:
        word = r.choice(kinds)() + r.choice(['', '', ' '])
        out.append(word)
        n += len(word.encode())
    return ''.join(out)


def make():
    r = random.Random(20240229)
    return sentences(r, 380_000) + code(r, 250_000) + blocks(r, 250_000) + traps(r, 200_000)


if __name__ == '__main__':
    path = pathlib.Path(__file__).parent / 'tokens/made.txt'
    path.write_bytes(make().encode())
    print(path, path.stat().st_size)
