"""Texts whose lines their authors broke. All were written for these tests."""

KEPT = {
    "headlines_zh": """\
央行宣布下调存款准备金率零点五个百分点
国家统计局发布上半年国民经济运行数据
新能源汽车出口量连续六个月保持增长态势
多地出台政策支持青年人才返乡就业创业
长三角一体化示范区建设取得阶段性成果
教育部部署做好秋季学期开学各项准备
我国自主研制大型客机完成首次商业飞行
全国粮食总产量有望再创历史新高水平
专家建议完善社区养老服务体系建设
夏季用电高峰来临电网负荷屡创新高""",
    "headlines_zh_punct": """\
快讯：国务院常务会议部署稳就业工作
“双减”两年后，家长们的焦虑减轻了吗？
从“制造”到“智造”：一家老厂的转型路
记者调查：预制菜为何频频引发争议
高温黄色预警！多地气温将超过四十度
新股申购：下周共有五只新股可申购
评论：让每一分救灾款都花在刀刃上
独家｜某平台因违规被罚三千万元
视频：消防员冒雨转移被困群众三百人
今起，这些新规将影响你我的生活""",
    "headlines_en": """\
Central bank cuts key rate for the third time this year
Storm leaves thousands without power along the coast
City council approves plan for new tram line downtown
Researchers find water ice beneath the crater floor
Union and railway agree on wages after long dispute
Museum returns bronze figures to their country of origin
Prices of used cars fall as supply of new ones recovers
Team wins the title for the first time in forty years
New bridge opens two months ahead of the schedule""",
    "headlines_lower": """\
how to choose a mattress that will not hurt your back
ten recipes for a quick dinner that children will like
what happens to your body when you stop eating sugar
why your cat stares at the wall and what it may mean
the best walks near the city that need no car at all
how much a kitchen really costs and where you can save
what the new rules on rents mean for those who move""",
    "wuyan": """\
山雨欲来迟，
江风吹客衣。
孤灯照残夜，
远雁向南飞。
故里千山外，
音书万里稀。
何当乘月去，
同看落花归。""",
    "qiyan": """\
小楼昨夜雨初收，晓看江天一色秋。
落木无声铺古道，寒鸦有意绕孤舟。
十年灯火成何事，万里风烟入此楼。
欲寄相思无过雁，凭栏独对水悠悠。""",
    "qiyan_lines": """\
春到江南草自生，
渔舟唱晚橹声轻。
谁家少女临窗坐，
细数归帆到月明。
一夜东风吹柳绿，
满城飞絮伴啼莺。
劝君莫负韶光好，
且向花前醉几觥。""",
    "modern_zh": """\
我在窗前等一场雨
等它把整座城市洗成灰色
等行人都撑起伞来
等你从街的那头走过
雨没有来
你也没有来
只有风翻动书页的声音
像谁在远处轻轻地叹息""",
    "long_modern_zh": """\
那一年的冬天特别漫长，雪落满了北方所有的屋顶，
母亲把最后一捧麦子放进锅里，火光映红了她的脸，
我们围坐在炉边听爷爷讲那些古老的、关于河流的故事，
窗外的风一阵紧似一阵，像是有人在敲打紧闭的门，
而春天，春天还在很远很远的地方慢慢地走着，
它要翻过许多座山，才能来到我们这个小小的村庄。""",
    "ci": """\
红烛背，绣帘垂，梦长君不知。
柳丝长，春雨细，花外漏声迢递。
惊塞雁，起城乌，画屏金鹧鸪。""",
    "verse_en": """\
The harbour sleeps beneath a veil of rain,
And lanterns nod above the silent quay;
The gulls have gone to shelter once again,
And none but I am listening to the sea.
It speaks of ships that never found the shore,
Of letters lost, and names that none recall,
Of one who waited by an open door
And heard at last no footstep in the hall.""",
    "verse_lower": """\
i have kept the smallest stones in my coat
for every street where you did not appear
the river turns them over in its throat
and gives them back more quietly each year
some evenings when the lamps are slow to burn
i count them out along the window sill
as if a number could make you return
or teach the restless pavement to be still""",
    "verse_de": """\
Der Abend legt sich leise auf das Feld,
und aus den Wäldern steigt ein grauer Rauch;
ein müder Wandrer geht durch diese Welt,
und was er sucht, das suchst du sicher auch.
Die Glocke ruft vom Dorf herüber: schlaf,
der Tag war lang, der Weg war steil und weit,
und wer den Morgen nicht am Wege traf,
der trifft ihn einmal in der Ewigkeit.""",
    "list_zh": """\
一、申请人应当提交身份证原件及复印件
二、申请人应当提交最近三个月的银行流水
三、申请人应当提交单位开具的收入证明
四、申请人应当提交房屋买卖合同的原件
五、申请人应当提交婚姻状况的证明材料""",
    "list_plain_zh": """\
全自动滚筒洗衣机，十公斤大容量，一级能效
智能变频空调，一匹半，冷暖两用，包安装
双开门风冷无霜冰箱，五百升，静音节能省电
超薄嵌入式洗碗机，十三套，热风烘干消毒
大吸力侧吸式抽油烟机，自动清洗，三年质保
燃气热水器，十六升，恒温零冷水，天然气用""",
    "list_en": """\
- a pair of warm gloves that you can write in
- a notebook with pages that will not get wet
- two pencils, since one of them will be lost
- a map of the valley on the largest scale
- something sweet for the last two kilometres""",
    "list_plain_en": """\
a hammer with a handle of hickory and a steel head
a saw for wood with twelve teeth to the inch or so
two screwdrivers, one of them for the crossed screws
a tape measure of five metres that locks in place
a spirit level as long as your arm or a bit longer
a box of nails of several lengths and of screws""",
    "dialogue_zh": """\
“你今天怎么这么晚才回来？”妈妈问。
“路上堵车了，等了快一个小时。”我说。
“饭菜都凉了，我再去给你热一热吧。”
“不用了，我在公司已经吃过一点了。”
“那喝碗汤吧，特意给你留的排骨汤。”
“好吧，那我就再喝一小碗汤，谢谢妈。”""",
    "dialogue_en": """\
"Where have you been all this time?" she asked.
"I missed the train and had to walk," he said.
"You might have called us from the station."
"The telephone there has not worked for years."
"Then sit down, the soup is nearly cold by now."
"I could eat a horse, with or without the soup.\"""",
    "chat_zh": """\
张三：明天的会议改到下午三点了，大家注意
李四：收到，那我上午先去客户那边把合同签了
王五：会议室还是五楼那间吗？需要带电脑吗
张三：是的，五楼，投影仪坏了，请自己带电脑
李四：好的，我顺便把上个月的报表也带过来吧
赵六：我可能晚到十分钟，你们先开始不用等我""",
    "questions_zh": """\
花呗逾期了会不会影响个人征信记录的查询
怎么样才能把微信里的聊天记录导出到电脑
我的身份证丢了应该去哪里补办需要多长时间
为什么我的手机充电的时候会发热得这么厉害
请问去上海的高铁票最早可以提前多少天购买
孩子发烧三十九度应该先物理降温还是吃药""",
    "questions_zh_marks": """\
花呗逾期了会不会影响个人征信记录的查询？
怎么样才能把微信里的聊天记录导出到电脑？
身份证丢了应该去哪里补办需要多长时间？
为什么我的手机充电的时候会发热得厉害？
去上海的高铁票最早可以提前多少天购买呢？
孩子发烧三十九度应该先物理降温还是吃药？""",
    "reviews_zh": """\
房间很干净，服务员态度也不错，下次还会来
位置有点偏，打车不方便，但是早餐很丰盛
性价比一般，隔音太差了，晚上根本睡不着觉
前台办理入住很快，还免费给升级了大床房，赞
设施老旧，空调声音大，不推荐带老人孩子入住
离地铁站步行五分钟，周围吃饭的地方非常多""",
    "sentences_zh": """\
这家公司成立于二零零三年，总部设在杭州。
他的祖父曾经是当地一位很有名望的中医。
地震发生后，救援队伍连夜赶赴受灾地区。
该药物对早期患者的有效率超过百分之八十。
这座古塔始建于宋代，至今已有九百余年。
比赛进行到第七十分钟时，主队扳平了比分。
研究人员在洞穴里发现了距今三万年的壁画。""",
    "sentences_en": """\
The company was founded in 2003 and sits in Leeds.
His grandfather had been a doctor in the village.
Rescue teams left for the region the same night.
The drug works in four of five patients at least.
The tower is more than nine hundred years old now.
In the seventieth minute the home side drew level.
The paintings in the cave are older than the ice.""",
    "sst": """\
a gripping story that never quite decides what it is about
hides new ideas beneath a layer of tired conventions
that loves its characters and knows a thing or two of loss
remains utterly satisfied to stay the same throughout
on the worst revenge of the season that could be dredged up
the film is a pleasant surprise for those who were not there
of saucy dialogue and a plot that goes nowhere in particular
so much for the second act , which drags on and on
equals the original and in some ways even betters it""",
    "address_zh": """\
北京市海淀区中关村大街二十七号院三号楼
上海市浦东新区张江高科技园区祖冲之路
广东省深圳市南山区科技园南区高新南一道
浙江省杭州市西湖区文三路四百五十九号
四川省成都市武侯区天府大道北段一千七百号
湖北省武汉市洪山区珞喻路一千零三十七号""",
    "address_en": """\
Department of Physics, University of Somewhere
Institute for Advanced Things, 14 Long Road, Hull
National Centre for Data, 3 River Street, Lyon
Laboratory of Fine Mechanics, 77 Hill Way, Brno
School of Medicine, Saint Mary's College, Perth""",
    "log": """\
2024-03-01 10:22:31 INFO server started on port 8080
2024-03-01 10:22:35 WARN cache is cold, filling it now
2024-03-01 10:23:02 INFO request served in 32 milliseconds
2024-03-01 10:23:09 ERROR connection to backend was lost
2024-03-01 10:23:10 INFO reconnected after 1 attempt only""",
    "code": """\
def normalise(values, weights, epsilon=1e-6):
    total = sum(v * w for v, w in zip(values, weights))
    scale = max(abs(total), epsilon)
    for index, value in enumerate(values):
        values[index] = value / scale
    return values""",
    "recipe": """\
200 grams of flour and a little for the table
100 grams of butter, cold and cut into small dice
2 eggs, of which you need the yolks alone
1 pinch of salt and 1 spoon of sugar or honey
3 spoons of cold water, more if the dough is dry""",
    "lyrics_en": """\
Come down to the river when the lights are low
Where the old boats rock and the cold winds blow
We will sing till the morning, we will dance till dawn
And nobody will notice that the night is gone
Oh, come down to the river, leave your shoes behind
There is nothing to lose and there is something to find""",
    "lyrics_zh": """\
如果有一天我不再是我
请你记得曾经那个少年
他在操场上奔跑的样子
像一阵自由的风掠过
如果有一天你不再是你
我会在老地方等着你来
陪你看一场迟到的日落
把没说完的话慢慢说完""",
    "titles_papers": """\
A survey of methods for the alignment of long sequences
On the stability of networks with delayed feedback loops
Learning to rank documents from very few judgements
Fast approximate search in spaces of high dimension
Estimating uncertainty in deep models without labels
The role of memory in models of human word recognition""",
    "short_par_zh": """\
通知
全体员工请于本周五下午两点到三楼大会议室开会
人事部""",
    "song_titles": """\
第一回　甄家公子梦游仙境　贾府千金初会扬州
第二回　冷子兴闲谈荣国府　林如海择师苏州城
第三回　托内兄如海酬训教　接外孙贾母惜孤女
第四回　薄命女偏逢薄命郎　葫芦僧判断葫芦案""",
    "ja_headlines": """\
政府が新たな経済対策を閣議決定、総額は過去最大
全国で猛暑日続く、熱中症による搬送者数が急増
新幹線の延伸区間が来春開業へ、地元で期待高まる
半導体工場の建設が本格化、人材確保が課題に浮上
首都圏の地価が三年連続で上昇、再開発が後押し""",
    "ko_headlines": """\
정부가 새로운 경제 대책을 발표하고 예산을 늘리기로 결정
전국에서 폭염이 이어지며 온열질환자가 크게 늘어나고 있다
새로운 고속철도 구간이 내년 봄에 개통될 예정이라고 밝혀
반도체 공장 건설이 본격화되면서 인재 확보가 과제로 떠올라
수도권 집값이 삼 년 연속 상승하며 재개발 기대감이 커져""",
    "table_text": """\
姓名　　性别　　年龄　　部门　　　　入职日期
王小明　男　　　二十八　技术开发部　二零一九年
李晓红　女　　　三十一　市场营销部　二零一七年
张建国　男　　　四十五　综合管理部　二零零八年""",
    "subtitles": """\
I never thought that it would end like this,
not after all the years we spent in here.
You could have told me long before today.
And what would you have done about it, then?
I would have packed my things and gone away.
There was a time when you believed in me.""",
    "products_en": """\
wireless keyboard with numeric pad and backlit keys
foldable laptop stand in brushed aluminium, silver
noise cancelling headphones with forty hours of play
usb hub with seven ports and its own power supply
ergonomic mouse for the left hand, three buttons
webcam with built in microphone and a privacy cover""",
    "news_ticker_zh": """\
台风“海棠”预计今晚登陆，沿海渔船全部回港避风
北方多地迎来降雪，交警提醒司机减速慢行保持车距
医保目录新增九十一种药品，平均降价幅度超过六成
全国铁路暑运发送旅客超过八亿人次，创历史新高
首批免签入境团抵达三亚，旅游市场加快复苏步伐
科研团队破解千年古墓壁画颜料成分，引发关注""",
    "headlines_with_one_q": """\
为什么年轻人越来越不愿意在大城市买房了？
央行再次下调中期借贷便利操作利率十个基点
专家：居民储蓄率上升反映预防性动机增强
三大运营商公布上半年业绩，净利润均增长
多家银行下调存款利率，三年期跌破百分之三
公募基金规模突破二十八万亿元，再创新高""",
    "wuyan4": """\
白日入寒林，孤城暮角沉。
故人千里别，明月一般心。
霜重钟声远，江空雁影深。
明朝挂帆去，何处是知音。""",
    "fu": """\
若夫清秋素节，玉露初零；
长空雁唳，远浦波平。
渔舟载月，归鸟投林；
野寺疏钟，荒村断砧。
感时序之迁流，叹浮生之易老；
抚孤松而盘桓，临清流而长啸。""",
    "modern_long": """\
我曾经在无数个夜晚想象过你的样子
像想象一座从未到过的、落着雨的城市
那里的街道很窄，灯光很暗，人们说着陌生的话
而你站在某一扇窗户的后面，轻轻地合上一本书
我走过去，敲门，没有人应答
只有雨，只有雨在屋檐上不停地说着什么""",
    "sonnet_enj": """\
When all the lamps along the river fade
And every bell has told its final hour,
I walk the bridge that older hands have made
Of stone and patience, under neither flower
Nor leaf, and think how little will remain
Of what we promised when the year was young;
How many summers we have spent in vain
On words that never should have left the tongue.""",
    "free_verse_en": """\
the morning comes in through the kitchen window like a dog
that knows the house and does not need to be invited
it lies down on the tiles beside the empty chair
and for a while nobody in the world is missing.
then the kettle begins its small complaint and the street
remembers what it is for, and I get up""",
    "hymn": """\
Lord of the morning, keep us through the day,
guard every footstep on the narrow way;
lend us thy patience when the road is long,
teach us thy silence, teach us too thy song.""",
    "dialogue_dash": """\
— Tu as vu le facteur ce matin dans la rue ?
— Non, il n'est pas encore passé, je crois.
— Il devait m'apporter une lettre de Lyon.
— Alors il faudra attendre jusqu'à demain.
— Demain c'est dimanche, tu le sais bien.""",
    "play": """\
MARIA: You said that you would never come again.
JOHN: I said so, and I meant it when I said it.
MARIA: And yet you stand here in the open door.
JOHN: The road was wet, and I had left my coat.
MARIA: Your coat is where it always was, my dear.""",
    "irc": """\
<anna> has anyone managed to build this on windows yet
<bert> i tried but it stops at the second step of the build
<anna> same here, something about a missing header file
<carl> you need the newer compiler, the old one is broken
<bert> thanks, that did it, took me the whole afternoon""",
    "resume": """\
2015-2018 Senior engineer, Northern Power, Hull
2012-2015 Engineer, Coastal Water Works, Dover
2009-2012 Assistant, Institute for Materials, Leeds
2005-2009 Student of physics, University of York
1999-2005 Grammar school, Scarborough, A levels""",
    "toc_en": """\
Introduction and purpose of this document . . . . 1
Installing the software on a single machine . . . 4
Installing the software on several machines . . . 9
Settings that you may change while it runs . . . 17
What to do when something does not work . . . . . 25""",
    "toc_zh": """\
第一章　绪论：研究的背景与意义　　　　　１
第二章　国内外研究现状及文献综述　　　　９
第三章　模型的构建与算法的设计　　　　２１
第四章　实验结果与对比分析讨论　　　　３５
第五章　结论以及对未来工作的展望　　　４８""",
    "bib": """\
Adams, R. (2001). Rivers and their towns. London.
Baker, S. (1998). A short history of salt. Oxford.
Clarke, T. (2010). Bridges of the north. Glasgow.
Dawson, P. (1987). On building with stone. Dublin.
Evans, M. (2015). What the maps left out. Cardiff.""",
    "bib_zh": """\
王某某．中国古代书院制度研究［Ｍ］．北京：中华书局
李某某．唐代文学与地域文化［Ｍ］．上海：古籍出版社
张某某．明清时期江南市镇研究［Ｊ］．历史研究，二零零一
赵某某．近代报刊与社会变迁［Ｄ］．武汉：武汉大学""",
    "faq_zh": """\
问：注册账号的时候收不到短信验证码怎么办
答：请检查手机信号，或者六十秒后重新获取
问：忘记登录密码了，应该怎么样才能找回来
答：在登录页面点击忘记密码，按提示操作即可
问：如何申请退款，退款多久能够到达我的账户
答：在订单详情页申请，一般三到五个工作日""",
    "commands": """\
sudo apt install build essential and the headers
sudo systemctl restart the service that you changed
sudo journalctl to see what went wrong this time
sudo reboot if nothing else has helped you so far""",
    "nli_pairs": """\
A man is playing a guitar on the street. Nobody listens
Two children are running through the wet grass. It rains
A woman is slicing an onion in the kitchen. She is crying
The dog is chasing a ball across the yard. It is a poodle
A group of people is waiting for the bus. They are late""",
    "tweets": """\
just missed the bus again, third time this week lol
cannot believe the weather today!! so warm for march
anyone up for the cinema tonight? the new one is out
my cat has learnt to open the fridge, send help please
coffee first, then we can talk about the world ending
finally finished the book, no spoilers but wow, wow""",
    "weibo": """\
今天的天气也太好了吧，适合出去走走晒晒太阳！
刚看完那部电影，哭得稀里哗啦，强烈推荐给大家
有没有人一起拼车去机场？明天早上六点从西门出发
新买的耳机音质真不错，就是戴久了耳朵有点疼哈
又加班到十点，地铁末班车差点没赶上，太难了！""",
    "signature": """\
Dr Helen Marsh, Head of the Department of History
University of the West, 21 Castle Hill, Bristol
Telephone on weekdays between nine and twelve
Office on the second floor, room 214, east wing""",
    "law_items": """\
（一）违反操作规程，造成人员伤亡或者重大财产损失的
（二）伪造、变造、买卖或者出租、出借许可证件的
（三）拒绝、阻碍监督检查人员依法履行职务的行为
（四）隐瞒有关情况或者提供虚假材料申请许可的""",
    "exam": """\
下列关于细胞呼吸的叙述，其中正确的一项是哪个
Ａ．有氧呼吸的场所只有线粒体而没有细胞质基质
Ｂ．无氧呼吸不需要酶的参与所以不受温度的影响
Ｃ．酵母菌在缺氧条件下可以产生酒精和二氧化碳
Ｄ．人体剧烈运动时肌肉细胞会产生酒精和能量""",
    "japanese_haiku": """\
古池の水面に映る月の影、
静かに揺れて夜は更けゆく、
山寺の鐘の音遠く響きけり、
旅人ひとり橋を渡りぬ。""",
    "russian_verse": """\
Над тихой речкой стелется туман,
и месяц смотрит в тёмное окно,
и где-то там, за лесом, океан,
которого не видел я давно.
Горит свеча, и тени на стене
рассказывают сказки обо мне.""",
    "reviews_en": """\
great hotel, very clean, breakfast could be better though
the staff went out of their way to help us, would go again
room was small and smelled of smoke. we asked for another
close to the station but noisy at night, bring ear plugs
perfect for a weekend, the view alone is worth the price""",
}
