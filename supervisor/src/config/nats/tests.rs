//! What the table `[nats]` reads and refuses.

use toml::de::DeTable;

use super::*;

fn read(text: &str) -> Result<NatsKeys, Vec<Wrong>> {
    let table = DeTable::parse(text).unwrap();
    NatsKeys::read(&table.get_ref()["nats"], Path::new("/etc/gridpool"), false)
}

#[test]
fn the_table_and_the_short_form_are_read() {
    let short = read("nats = \"nats://a,b,c\"").unwrap().resolve().unwrap().unwrap();
    assert_eq!(short.nats.servers.len(), 3);
    assert_eq!(short.limits.replicas, 3, "three servers keep three copies");
    assert!(!short.host.is_empty());
    let long = read(
        "[nats]\nservers = [\"nats://a\"]\nprefix = \"team\"\ncredentials = \"pool.creds\"\nhost = \"h1\"\n\
         jobs_max = 10\nack_wait_s = 5\nunder_way_max = 3\ncert = \"pool.pem\"\nkey = \"/k/pool-key.pem\"",
    );
    let long = long.unwrap().resolve().unwrap().unwrap();
    assert_eq!(long.nats.credentials.unwrap(), Path::new("/etc/gridpool/pool.creds"));
    assert_eq!(long.nats.cert.unwrap(), Path::new("/etc/gridpool/pool.pem"));
    assert_eq!(long.nats.key.unwrap(), Path::new("/k/pool-key.pem"));
    assert_eq!((long.nats.prefix.as_str(), long.host.as_str()), ("team", "h1"));
    assert_eq!((long.limits.jobs_max, long.limits.replicas), (10, 1));
    assert_eq!((long.limits.ack_wait.as_secs(), long.under_way_max), (5, Some(3)));
}

#[test]
fn what_is_wrong_is_said() {
    for (text, said) in [
        ("nats = 1", "a table"),
        ("nats = \"a\"", "nats://HOST:PORT"),
        ("[nats]\nprefix = \"x\"", "needs `servers`"),
        ("[nats]\nservers = \"nats://a\"\nprefix = \"a.b\"", "no prefix"),
        ("[nats]\nservers = \"nats://a\"\nhost = \"\"", "such as `alpha`, or leave it out"),
        ("[nats]\nservers = \"nats://a\"\nhost = \"a b\"", "such as `a-b`"),
        ("[nats]\nservers = \"nats://a\"\nhost = \"a.lan\"", "such as `a-lan`"),
        ("[nats]\nservers = \"nats://a\"\nhost = \"*\"", "such as `alpha`"),
        ("[nats]\nservers = \"nats://a\"\nhost = \"a>\"", "such as `a-`"),
        ("[nats]\nservers = \"nats://a\"\njobs_max = 0", "from 1 to"),
        ("[nats]\nservers = \"nats://a\"\nwhat = 1", "no setting `what`"),
    ] {
        let wrong = read(text).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].1.contains(said), "{text}: {wrong:?}");
    }
}

#[test]
fn a_host_has_up_to_64_signs_and_a_machine_any_name() {
    let named = |host: String| NatsKeys {
        servers: Some("nats://a".to_owned()),
        host: Some(host),
        ..NatsKeys::default()
    };
    assert!(named("a".repeat(64)).resolve().is_ok());
    assert!(named("a".repeat(65)).resolve().unwrap_err().contains("up to 64"));
    assert_eq!(as_host("gpu-1.example.com"), "gpu-1-example-com");
}

#[test]
fn a_certificate_has_a_key() {
    let file = read("[nats]\nservers = \"nats://a\"\ncert = \"c.pem\"").unwrap();
    assert!(file.options().unwrap_err().contains("--nats-key"));
    let flags = NatsKeys { key: Some("k.pem".into()), ..NatsKeys::default() };
    assert!(flags.over(file).options().is_ok());
}

#[test]
fn flags_go_over_the_file() {
    let file = read("[nats]\nservers = \"nats://a\"\nprefix = \"x\"\njobs_max = 10").unwrap();
    let flags = NatsKeys { servers: Some("nats://b".to_owned()), ..NatsKeys::default() };
    let both = flags.over(file).resolve().unwrap().unwrap();
    assert_eq!(both.nats.servers, ["nats://b"]);
    assert_eq!((both.nats.prefix.as_str(), both.limits.jobs_max), ("x", 10));
    assert_eq!(NatsKeys::default().resolve().unwrap(), None);
    let nowhere = NatsKeys { host: Some("one".to_owned()), ..NatsKeys::default() };
    assert!(nowhere.resolve().unwrap_err().contains("name its servers, too"));
}
