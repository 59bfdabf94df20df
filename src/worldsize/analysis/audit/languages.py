"""Words of headings in other languages than English, as English ones."""

import re

_WORDS = (
    (r"\banzahl(?: der)?\b|\bnombre (?:de |d['’])|\bn[úu]mero d[eio]\b|数量|\b(?:число|количество)\b", " number of "),
    (r"单卡|每(?:张|块|个)?(?:显?卡|gpu|进程)|1\s?gpuあたり"
     r"|(?:\b(?:pro|je|par|por|per)\s+|\bна\s+)(?:karte|gpu)\b", " per GPU "),
    (r"每(?:个|一)?(?=epoch|轮)", " per "),
    (r"每(?:个|一)?步", " per step "),
    (r"节点\s?数?|ノード数?|\bузл(?:ов|ы|а)?\b", " nodes "),
    (r"(?:显卡|进程|卡)\s?数?|gpu\s?数|プロセス数?", " GPUs "),
    (r"\bknoten\b|\bn(?:œ|oe)uds?\b|\bnod[oi]s?\b|\bn[óo]s\b", "nodes"),
    (r"\bprozess(?:e|en|oren)?\b|\bprocessus\b|\bproces(?:os|sos|si)\b|\bпроцесс\w*", "processes"),
    (r"\bkerne\b|\bc(?:œ|oe)urs?\b|\bn[úu]cleos\b|\bядер\b", "cores"),
    (r"全局|\bglobal[er]\b", " global "),
    (r"总|合计|\bgesamt(?=[a-z]|\b)|\binsgesamt\b|\btotale?\b|\bобщ\w+", " total "),
    (r"批(?:次|量|处理)?(?:的)?(?:大小|尺寸)|批量|バッチサイズ|\bstapelgr(?:ö|oe)(?:ß|ss)e\b|\bbatch-?gr(?:ö|oe)(?:ß|ss)e\b"
     r"|\btaille (?:de|du) (?:lot|batch)\b|\btama[ñn]o de(?:l)? lote\b", " batch size "),
    (r"加速比|速度向上率?|高速化率"
     r"|\bbeschleunigung\b|\bacc[ée]l[ée]ration\b|\baceleraci[óo]n\b|\bacelera[çc][ãa]o\b|\bускорение\b", " speedup "),
    (r"效率|効率"
     r"|\b\w*effizienz\b|\befficacit[ée]\b|\befici[eê]ncia\b|\befficienza\b|\bэффективность\b", " efficiency "),
    (r"吞吐[量率]?|スループット|\bdurchsatz\b|\bd[ée]bit\b|\brendimiento\b", " throughput "),
    (r"带宽|\bbandbreite\b|\bbande passante\b|\bancho de banda\b", " bandwidth "),
    (r"通[信讯]|\bkommunikations?(?=zeit|\b)|\bcomunicaci[óo]n\b|\bcomunica[çc][ãa]o\b", " communication "),
    (r"计算|\brechen(?=zeit)|\bberechnungs?(?=zeit|\b)|\bcalcul\b|\bc[áa](?:lculo|omputo)\b", " compute "),
    (r"占比|\banteil\b", " share "),
    (r"\bepochen(?=zeit|dauer)", "epoch "),
    (r"\bschritt(?=zeit|dauer)", "step "),
    (r"时间|耗时|用时|時間"
     r"|\b(?:lauf|wand|trainings)?(?:zeit|dauer)\b|\btemps\b|\bdur[ée]e\b|\bt(?:iempo|empo)\b|\bвремя\b", " time "),
    (r"\bepochen?\b|\b[ée]poques?\b|\b[ée]pocas?\b|\bэпох\w*|エポック|轮", " epoch "),
    (r"迭代|\bschritte?\b|\b[ée]tapes?\b|\bit[ée]rations?\b|\bpasos?\b", " step "),
    (r"毫秒", " ms "),
    (r"分钟", " minutes "),
    (r"小时", " hours "),
    (r"秒|\bsekunden?\b|\bsek\b\.?|\bsecondes?\b|\bsegundos?\b", " seconds "),
    (r"[图圖]像|图片|张|枚|\bbilder\b|\bim[áa]genes\b|\bimagens\b", " images "),
    (r"样本|\bmuestras\b", " samples "),
    (r"准确率|\bgenauigkeit\b", " accuracy "),
    (r"显存|\bspeicher\b", " memory "),
    (r"参数量", " parameters "),
    (r"强(?:扩展|缩放)|\bstarke[rn]? skalierung\b|\bpassage à l['’]échelle fort\b", " strong scaling "),
    (r"弱(?:扩展|缩放)|\bschwache[rn]? skalierung\b", " weak scaling "),
    (r"\b(?:pro|je|par|por)\s+(?=epoch|step|gpu|nodes?\b|worker|process|seconds)", "per "),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), english) for pattern, english in _WORDS)
_WIDE = str.maketrans("（）：，％／＝［］", "():,%/=[]")
"""Signs of Chinese and Japanese text, which are as wide as its letters."""


def in_english(text: str) -> str:
    """The text with the words that a scaling table is headed with in nine other languages in English."""
    text = text.translate(_WIDE)
    for pattern, english in _COMPILED:
        text = pattern.sub(english, text)
    return text
