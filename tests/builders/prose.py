"""Paragraphs for programs to break into lines. All were written for these tests."""

SPACED = [
    (
        "The committee met for the first time in the spring, when the snow had gone from the lower va"
        "lleys and the road over the pass was open again. Nobody had expected much of it. Yet by the "
        "end of the second day its members had agreed on a plan that surprised even those who had wri"
        "tten the draft, and the newspapers, which had hardly mentioned the meeting before, filled th"
        "eir front pages with it for a week."
    ),
    (
        "To install the pump, first close the main valve and let the water drain from the pipes, whic"
        "h may take a few minutes. Remove the four screws at the base, lift the old pump out and clea"
        "n the seat with a dry cloth. If the seal is damaged, replace it; a pump that leaks will fail"
        " within a month. Then put the new pump in place, fasten the screws crosswise and open the va"
        "lve slowly, so that the air can escape."
    ),
    (
        "I had not been back to the town since my father died, and I was not sure that I would find t"
        "he house. The street had another name now. There was a bakery where the school used to be, a"
        "nd a garage in place of the orchard, but the lime tree at the corner was still there, and be"
        "neath it sat an old man who looked at me as if he knew who I was and had been waiting for me"
        " to come."
    ),
    (
        "Large models need large amounts of text, and most of that text comes from the web, where it "
        "is mixed with menus, adverts and fragments of code. Cleaning it is tedious work that few peo"
        "ple like to describe in detail, although the quality of a model depends on it more than on m"
        "ost of the things that papers do describe. We report what we removed, how often, and what it"
        " changed, on three corpora of different kinds."
    ),
    (
        "We had walked for six hours, the last two of them in the rain, when Peter saw the light. It "
        "was not much of a light, a yellow square no larger than a stamp at the far end of the valley"
        ', but it was enough to make us forget our feet. "That will be the hut," he said. Nobody answ'
        "ered. We went down in a line, each of us with a hand on the pack of the one before, and the "
        "path, which had been stone all day, turned to mud and then to water."
    ),
    (
        "Section 4 of the agreement applies only where both parties have given notice in writing at l"
        "east ninety days before the end of the term; notice by telephone or electronic mail is not s"
        "ufficient unless it has been confirmed by post. Where no notice is given, the agreement cont"
        "inues for a further year on the same terms, with the exception of the fees, which the provid"
        "er may raise by no more than three per cent."
    ),
    (
        "Bake the bread for forty minutes, or until it sounds hollow when you knock on its underside."
        " Do not open the oven in the first twenty minutes, since the crust will collapse. Let it coo"
        "l on a rack; warm bread is hard to cut and, whatever your grandmother told you, harder to di"
        "gest"
    ),
    (
        "Als die Kommission im Frühjahr zum ersten Mal zusammentrat, lag in den oberen Tälern noch Sc"
        "hnee, und die Straße über den Pass war gesperrt. Niemand hatte viel von ihr erwartet. Am Abe"
        "nd des zweiten Tages aber hatten sich die Mitglieder auf einen Plan geeinigt, der selbst die"
        " Verfasser des Entwurfs überraschte, und die Zeitungen, die das Treffen vorher kaum erwähnt "
        "hatten, schrieben eine ganze Woche lang von nichts anderem."
    ),
    (
        "Quand la commission se réunit pour la première fois au printemps, la neige couvrait encore l"
        "es hautes vallées et la route du col était fermée. Personne n'en attendait grand-chose. Pour"
        "tant, au soir du deuxième jour, ses membres s'étaient mis d'accord sur un plan qui surprit j"
        "usqu'à ceux qui en avaient rédigé l'ébauche, et les journaux, qui avaient à peine mentionné "
        "la réunion, en parlèrent pendant une semaine."
    ),
    (
        "Весной, когда в верхних долинах ещё лежал снег, а дорога через перевал была закрыта, комисси"
        "я собралась в первый раз. Никто не ждал от неё многого. Но к вечеру второго дня её члены дог"
        "оворились о плане, который удивил даже тех, кто писал черновик, и газеты, прежде едва упомин"
        "авшие о встрече, целую неделю писали только о ней и о людях, которые её готовили."
    ),
    (
        "Die Bundesregierung hat am Mittwoch beschlossen, dass die Mittel für den Ausbau der Eisenbah"
        "n in den kommenden Jahren deutlich erhöht werden. Der Minister sagte, die Bahn sei das Rückg"
        "rat des Verkehrs. Kritiker bemängeln, dass die Strecken im Osten des Landes weiterhin vernac"
        "hlässigt würden und die Züge zu spät kommen."
    ),
]
CHINESE = [
    (
        "会议于上午九点在市政府大楼召开，来自各区县的一百多名代表参加了会议。会上，市长首先回顾了过去"
        "一年的工作，指出全市经济总体平稳，但是也面临不少困难和挑战，特别是部分中小企业融资难、融资贵"
        "的问题还没有得到根本解决。与会代表围绕如何改善营商环境展开了热烈的讨论，提出了许多有价值的意"
        "见和建议。"
    ),
    (
        "那天傍晚我沿着河边慢慢地走，夕阳把水面染成了金红色，几个孩子在浅滩上捉鱼，笑声远远地传过来。"
        "我忽然想起小时候，父亲也常常带我到这条河边来，他教我打水漂，教我辨认各种各样的水鸟，还告诉我"
        "，这条河一直流下去，就能流到大海。后来我离开了家乡，再也没有见过这样清澈的河水。"
    ),
    (
        "根据本合同的约定，甲方应当在收到货物之日起三十日内向乙方支付全部货款；逾期支付的，每逾期一日"
        "，应当按照未付款项的万分之五向乙方支付违约金。乙方交付的货物不符合质量标准的，甲方有权要求更"
        "换或者退货，由此产生的运输费用由乙方承担。双方因履行本合同发生争议的，应当协商解决。"
    ),
    (
        "光合作用是绿色植物利用光能把二氧化碳和水合成为有机物并释放氧气的过程，它是地球上几乎所有生命"
        "赖以生存的基础。叶绿体中的色素吸收光能之后，把能量传递给反应中心，在那里水分子被分解，产生氧"
        "气、质子和电子，随后这些电子经过一系列的传递体，最终用来还原二氧化碳，形成糖类等物质。"
    ),
    (
        "“你真的要走吗？”她站在门口，声音低得几乎听不见。他没有回答，只是把箱子放在地上，慢慢地转过身"
        "来。屋里的灯还亮着，桌上的两碗面已经凉了，谁也没有动过筷子。外面的雨下得很大，雨水顺着屋檐流"
        "下来，在石阶上砸出一个又一个小小的水坑。"
    ),
    (
        "随着互联网技术的快速发展，越来越多的传统企业开始尝试数字化转型。然而，转型并不是简单地把线下"
        "业务搬到线上，它涉及组织结构、业务流程乃至企业文化的全面变革。一项针对三百家制造企业的调查显"
        "示，只有不到四分之一的企业认为自己的转型取得了预期的效果，主要原因在于缺乏清晰的战略和专业的"
        "人才"
    ),
    (
        "本文提出了一种基于稀疏注意力的长文本编码方法。该方法首先将输入序列划分为若干个固定长度的块，"
        "然后在块内使用全注意力，在块间使用稀疏注意力，从而把计算复杂度从平方级降低到近似线性级。在三"
        "个公开数据集上的实验表明，该方法在保持精度的同时，将训练速度提高了约两倍，显存占用降低了百分"
        "之四十。"
    ),
]
JAPANESE = [
    (
        "委員会が初めて開かれたのは春のことで、谷の上の方にはまだ雪が残り、峠を越える道は閉ざされてい"
        "た。誰も大きな成果を期待してはいなかった。ところが二日目の夕方には、草案を書いた人々でさえ驚"
        "くような計画がまとまり、それまで会議のことをほとんど伝えなかった新聞も、一週間にわたってその"
        "話題で紙面を埋めることになった。"
    ),
]
KOREAN = [
    (
        "위원회가 처음 열린 것은 봄이었는데, 골짜기 위쪽에는 아직 눈이 남아 있었고 고개를 넘는 길은 "
        "막혀 있었다. 아무도 큰 성과를 기대하지 않았다. 그런데 이틀째 저녁이 되자 초안을 쓴 사람들조"
        "차 놀랄 만한 계획이 마련되었고, 그때까지 회의를 거의 다루지 않던 신문들도 일주일 동안 그 이"
        "야기로 지면을 채웠다."
    ),
]
