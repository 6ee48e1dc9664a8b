//! The programs of the known-answer test and the digests of their right results. Data only.

use gridpool_protocol::program::Ties;

use super::KnownAnswer;

const fn answer(text: &'static str, ties: Ties, digest: &'static str) -> KnownAnswer {
    KnownAnswer { text, ties, digest }
}

/// Programs that together use every op, both tie modes, and ops after ops.
pub const KNOWN_ANSWERS: &[KnownAnswer] = &[
    answer(
        "identity",
        Ties::Cpython,
        "83d4a9ecd32a93878879417271522d60aacd799d26582cb4072a880782759e73",
    ),
    answer(
        "rot90",
        Ties::Cpython,
        "d7204ff904cb5577406fd6860a4956c0b783e605f5fe30b87eccc0d0417ca7dc",
    ),
    answer(
        "rot180",
        Ties::Cpython,
        "fba503c3f7b2532c7f00969f4e7dc98137cf548761cecbe56a1f3474a9b10d30",
    ),
    answer(
        "rot270",
        Ties::Cpython,
        "3e82241ee699abab583dad5a689eb84498c5d500d8507cd8762c7d438dd7cb31",
    ),
    answer(
        "hmirror",
        Ties::Cpython,
        "94f98c861a2808565dc7444770ddb707f94ea537236c482fa6a42621d15c9293",
    ),
    answer(
        "vmirror",
        Ties::Cpython,
        "7f20d08b1cc7110a1e694739f95a3fcdc19cda8e63880c7f2a0bd9d745851a98",
    ),
    answer(
        "dmirror",
        Ties::Cpython,
        "0928dca0647d8ad7d2b7c5e97a951ea709ead6ef31e4245ae167b7e008600d79",
    ),
    answer(
        "cmirror",
        Ties::Cpython,
        "a6a8a302eaaf6cafac832b26f03b01fd9dbff451510204d818844d325e2db4b7",
    ),
    answer(
        "replace(0, 5)",
        Ties::Cpython,
        "aec23642122b17ffc27ec825dfb950c05686e446a74790e0b5e5e1cbb473108a",
    ),
    answer(
        "switch(1, 2)",
        Ties::Cpython,
        "0c4aaf70cc339062dc910001903da58d51d7d2b15ec98a520c086202ada81a19",
    ),
    answer(
        "mostcolor",
        Ties::Cpython,
        "39af9cf071a5557b753922816b54c520470c483ba1133fdc59ab6f156ad0e2af",
    ),
    answer(
        "leastcolor",
        Ties::Cpython,
        "5d5aa47e9b0ada91f0bbf19f40127e02e262fc5dc2151fee857c66e478da815d",
    ),
    answer(
        "palette",
        Ties::Cpython,
        "34e8c381cd867df25d6441d6a6ada905802f41c0c21a09df504e0816bdf26d12",
    ),
    answer(
        "numcolors",
        Ties::Cpython,
        "45ad8c0ef6151404732da32083d2f5f2674c5b2f029925a11605ca4be1f606d3",
    ),
    answer(
        "colorcount(2)",
        Ties::Cpython,
        "2b9baf6a404f46ab2f5bdd6622db573677c28fb639021766d2d1ebed53f56e2f",
    ),
    answer(
        "o_g(0)",
        Ties::Cpython,
        "1297445329db17628fb6adb031c2dd12aab9895c7fb5fd3eb627d792baaf7f9c",
    ),
    answer(
        "o_g(1)",
        Ties::Cpython,
        "4af00396052dd3f6e628635de43ad40427dea7d407b6150aafeac860b15bf045",
    ),
    answer(
        "o_g(2)",
        Ties::Cpython,
        "1297445329db17628fb6adb031c2dd12aab9895c7fb5fd3eb627d792baaf7f9c",
    ),
    answer(
        "o_g(3)",
        Ties::Cpython,
        "0d9414036fa8ebf3cab4b0da61ffb09a03c528f28bf9bd14e7ded4a477422898",
    ),
    answer(
        "o_g(4)",
        Ties::Cpython,
        "4a1d815364a85ecf80fad83a4d19bfed2c162ee9a27b0e100c05fe45aa56e2d0",
    ),
    answer(
        "o_g(5)",
        Ties::Cpython,
        "dcb458cf2e4c03dd259dfc4c4bdc6cb0a0a4964757f9cb5501e35bbb3399b82e",
    ),
    answer(
        "o_g(6)",
        Ties::Cpython,
        "2a0ca81711b1131238dbd0dcd270fad34fc99dbb797b3050c881bc630feeff95",
    ),
    answer(
        "o_g(7)",
        Ties::Cpython,
        "df1070a5e18ac988c8d34530e091d03a44acd1bc24d76c121156671023f9d5bd",
    ),
    answer(
        "mostcolor",
        Ties::Lowest,
        "0ff967534efcf49d480745414ca338fae0bbb385e43ba3c7764d6e00d3ccf528",
    ),
    answer(
        "leastcolor",
        Ties::Lowest,
        "14c9fb58f05ecd465860af59d8e44d46c88cb71d4aa766af0a60471301323aee",
    ),
    answer(
        "palette",
        Ties::Lowest,
        "2107d2c1800d0408b66cdbfa4626a82e7e977062bfbf85247d8298f3408074b0",
    ),
    answer(
        "o_g(5)",
        Ties::Lowest,
        "9bfa7c15af3165a5ecd26d4d0aaf50f662c9c471cd7b71ffc54a2ba3c8c572cf",
    ),
    answer(
        "rot90 | switch(0, 8) | palette",
        Ties::Cpython,
        "60ffebbca5ff3e6eb647002c1ffb34745533f2ed553460fdf8405d454ebc689d",
    ),
    answer(
        "hmirror | replace(3, 0) | rot270 | objects(true, true, true)",
        Ties::Cpython,
        "96ac135bc06be0463f0de6aafc6f3ef3468efb60835d214cb30dd55b37ba90a6",
    ),
];
