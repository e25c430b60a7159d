//! `nfsw exports`: what a server offers.

use nfs_wireless_client::{Client, Export};

use nfs_files::Context;

use crate::{
    args::ExportsArgs,
    error::unreachable,
    report::{Reporter, event},
    servers::Access,
    text::escape,
};

pub(super) async fn run(
    arguments: &ExportsArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let host = &arguments.host;
    let Access { address, config } = context.servers.access(host)?;
    let exports = Client::exports(&address, config).await;
    let exports = exports.map_err(|error| unreachable(error, host.server()))?;
    if exports.is_empty() {
        reporter.warning(format!("{} exports nothing", host.server()));
    }
    let width = exports.iter().map(|export| escape(&export.directory).chars().count()).max().unwrap_or(0);
    for export in &exports {
        let (path, groups) = (escape(&export.directory), groups(export));
        if reporter.json() {
            let mut event = event("export", &[("path", &export.directory)]);
            event["groups"] = groups.into();
            reporter.event(&event)?;
        } else {
            let groups = if groups.is_empty() { "(everyone)".to_owned() } else { groups.join(",") };
            reporter.print(format!("{path:width$}  {groups}\n").as_bytes())?;
        }
    }
    Ok(())
}

fn groups(export: &Export) -> Vec<String> {
    export.groups.iter().map(|group| escape(group).into_owned()).collect()
}
