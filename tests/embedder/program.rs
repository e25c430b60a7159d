//! What somebody writes who has read docs/embedding.md: copies a tree to a server, and says what happens.

use nfs_files::{
    Context,
    copy::{self, Options},
    event::Event,
    servers::Servers,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> nfs_files::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (source, destination) = (arguments.next().expect("a source"), arguments.next().expect("a destination"));
    let events = |event: &Event<'_>| {
        match event {
            Event::Resumed { target, bytes, size, .. } => println!("resumed {}: {bytes} of {size}", target.shown),
            Event::Copied { target, bytes, .. } => println!("copied {}: {bytes}", target.shown),
            Event::Failed(error) => eprintln!("{error}"),
            _ => {}
        }
        Ok(())
    };
    let mut options = Options::new([source.parse()?], destination.parse()?);
    options.recursive = true;
    let counts = copy::run(&options, Context { servers: &Servers::default(), events: &events }).await?;
    println!("{} copied, {} failed", counts.copied, counts.failed);
    Ok(())
}
